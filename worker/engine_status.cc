// The engine's reports: progress of sequences, the node's status, the trace of rounds.
#include "base/clock.h"
#include "worker/engine.h"
#include "worker/report.h"

namespace coppice {

void Engine::Report(Sequence* sequence, proto::Progress* progress) {
  if (!FillUpdate(sequence, progress->add_updates())) progress->mutable_updates()->RemoveLast();
}

void Engine::PublishStatus() {
  last_status_s_ = SteadyClock().NowSeconds();
  const BlockCounts blocks = host_->blocks->counts();
  proto::NodeStatus status;
  status.set_step(plans_->step());
  status.set_running(scheduler_.running());
  status.set_waiting(static_cast<int>(waiting_.size()));
  status.set_kv_blocks_used(blocks.used);
  status.set_kv_blocks_total(blocks.total);
  status.set_kv_blocks_cached(blocks.cached);
  counters_.set_prefix_cache_queries(host_->blocks->cache_queries());
  counters_.set_prefix_cache_hits(host_->blocks->cache_hits());
  counters_.set_plan_bytes(plans_->bytes());
  counters_.set_draft_bytes(drafts_.bytes());
  *status.mutable_counters() = counters_;
  agent_->SetStatus(status);
}

void Engine::Trace(const Sequence& sequence, int rows, int layers, double now_s, double forward_s) {
  if (sequence.last_verdict_s == 0) return;
  trace_.Add({sequence.id, sequence.round, rows, sequence.draft_shape.width,
              sequence.draft_shape.depth, layers, now_s - sequence.last_verdict_s, forward_s,
              sequence.draft_wait_s, sequence.draft_s, sequence.draft_model_s});
}

}  // namespace coppice
