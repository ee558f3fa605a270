// Reports of the draft service: forests, failures and energy to leaders, its status to the
// coordinator.
#include <spdlog/spdlog.h>

#include <optional>
#include <string>

#include "base/log.h"
#include "draft_node/draft_service.h"
#include "proto/convert.h"

namespace coppice::draft_node {

void DraftService::ShareEnergy(absl::Span<const KeyRows> forests,
                               absl::Span<const KeyRows> prefills) {
  int total = 0;
  for (const auto& some : {forests, prefills}) {
    for (const KeyRows& part : some) total += part.rows;
  }
  const std::optional<double> row_joules = energy_.StepEnds(clock_->NowSeconds(), total);
  for (const auto& some : {forests, prefills}) {
    for (const auto& [key, rows] : some)
      slots_.at(key).energy.Add(row_joules ? std::optional(*row_joules * rows) : std::nullopt);
  }
}

// Sent when no request waits for the prompt. Otherwise the forest reports the same, and the energy
// of the prompt.
void DraftService::TellPrefilled(const Key& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end()) return;
  Slot& slot = found->second;
  if (slot.session->prefilling() || slot.builder != nullptr || slot.waiting != nullptr) return;
  proto::DraftReply reply;
  reply.set_session_id(key.second);
  reply.set_prefilled(true);
  reply.set_sessions(static_cast<uint32_t>(slots_.size()));
  if (const auto joules = options_.energy ? slot.energy.Take() : std::nullopt)
    reply.set_energy_joules(*joules);
  leaders_->Send(key.first, reply).IgnoreError();
}

void DraftService::Reply(const Key& key, Slot* slot) {
  proto::DraftReply reply;
  reply.set_session_id(key.second);
  reply.set_round(slot->builder->round());
  *reply.mutable_forest() = proto::ForestToMessage(slot->builder->Sent());
  reply.set_draft_ms((clock_->NowSeconds() - slot->request_time_s) * 1e3);
  reply.set_model_ms(slot->model_s * 1e3);
  reply.set_sessions(static_cast<uint32_t>(slots_.size()));
  if (const auto joules = slot->energy.Take()) reply.set_energy_joules(*joules);
  slot->builder.reset();
  if (auto status = leaders_->Send(key.first, reply); !status.ok()) {
    spdlog::warn("a leader is gone: {}", std::string(status.message()));
  }
}

void DraftService::Fail(const Key& key, uint32_t round, const std::string& why) {
  proto::DraftReply reply;
  reply.set_session_id(key.second);
  reply.set_round(round);
  reply.set_error(why);
  const auto found = slots_.find(key);
  node::EnergyTally energy = found == slots_.end() ? node::EnergyTally() : found->second.energy;
  if (const auto joules = energy.Take()) reply.set_energy_joules(*joules);
  LogFields(spdlog::level::debug, "session fails",
            {{"session", absl::StrCat(key.second)},
             {"trace_id", found == slots_.end() ? LogValue() : TextOrNone(found->second.trace_id)},
             {"reason", why}});
  Drop([&](const Key& other) { return other == key; });
  leaders_->Send(key.first, reply).IgnoreError();
}

void DraftService::PublishStatus() {
  if (agent_ == nullptr) return;
  proto::NodeStatus status;
  const model::BlockCounts counts = blocks_->counts();
  status.set_step(runner_->steps());
  status.set_sessions(static_cast<int>(slots_.size()));
  status.set_kv_blocks_total(counts.total);
  status.set_kv_blocks_used(counts.used);
  status.set_kv_blocks_cached(counts.cached);
  status.mutable_counters()->set_weight_bytes_read(runner_->reads().weights);
  status.mutable_counters()->set_kv_bytes_read(runner_->reads().kv);
  const double now_s = clock_->NowSeconds();
  if (const auto joules = options_.energy ? options_.energy->Counted(now_s) : std::nullopt) {
    status.set_energy_joules(*joules);
    status.set_energy_source(options_.energy->kind());
  }
  agent_->SetStatus(status);
}

}  // namespace coppice::draft_node
