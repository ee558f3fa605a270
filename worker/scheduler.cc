#include "worker/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "worker/client_queues.h"

namespace coppice::worker {

int64_t Scheduler::BlocksNeeded(const Sequence& sequence) const {
  return decoding::KvPagesBound(sequence.params, static_cast<int64_t>(sequence.prompt.size()),
                                options_.kv_storage);
}

absl::Status Scheduler::CheckFits(const Sequence& sequence) const {
  if (const int beams = decoding::MostBeams(sequence.params); beams > options_.max_rows) {
    return absl::ResourceExhaustedError(
        absl::StrCat(beams, " beams do not fit in a forward pass of ", options_.max_rows, " rows"));
  }
  const int64_t needed = BlocksNeeded(sequence);
  if (needed <= options_.kv_blocks) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the request can need ", needed, " KV ",
                   options_.kv_storage.windows.empty() ? "blocks" : "pages", " of ",
                   options_.kv_storage.block_size, " tokens, a replica has ", options_.kv_blocks));
}

bool Scheduler::Admit(Sequence* sequence) {
  const int64_t needed = BlocksNeeded(*sequence);
  if (reserved_ + needed > options_.kv_blocks) return false;
  sequence->reserved_blocks = needed;
  reserved_ += needed;
  ++running_;
  return true;
}

bool Scheduler::AdmitInTurn(Sequence* sequence) {
  if (!Admit(sequence)) {
    if (!passed_over_) passed_over_ = sequence->id;
    return false;
  }
  if (passed_over_ == sequence->id) {
    passed_over_.reset();
    passed_by_blocks_ = 0;
  } else if (passed_over_) {
    passed_by_blocks_ += sequence->reserved_blocks;
  }
  return true;
}

std::vector<Sequence*> Scheduler::AdmitByTurns(absl::Span<Sequence* const> waiting) {
  std::vector<Sequence*> admitted;
  const auto passed_over = std::find_if(
      waiting.begin(), waiting.end(), [this](const Sequence* s) { return s->id == passed_over_; });
  if (passed_over == waiting.end()) {  // no sequence was passed over, or it was cancelled
    passed_over_.reset();
    passed_by_blocks_ = 0;
  }
  const auto all_wait = [this] { return passed_over_ && passed_by_blocks_ >= options_.kv_blocks; };
  if (all_wait() && !AdmitInTurn(*passed_over)) return admitted;
  const std::vector<ClientQueue> queues = ByClient(waiting);
  std::vector<size_t> tried(queues.size());
  std::vector<bool> waits(queues.size());
  turns_.Begin(Askers(queues));
  while (const std::optional<int> next = all_wait() ? std::nullopt : turns_.First()) {
    const std::vector<Sequence*>& its = queues[*next].sequences;
    if (tried[*next] == its.size()) {
      turns_.Leave(*next, waits[*next]);
      continue;
    }
    Sequence* sequence = its[tried[*next]++];
    if (sequence->reserved_blocks > 0 || AdmitInTurn(sequence)) {
      turns_.Give(*next, static_cast<double>(sequence->reserved_blocks));
      admitted.push_back(sequence);
    } else {
      waits[*next] = true;
    }
  }
  turns_.End();
  return admitted;
}

void Scheduler::Release(Sequence* sequence) {
  if (sequence->reserved_blocks == 0) return;
  reserved_ -= sequence->reserved_blocks;
  sequence->reserved_blocks = 0;
  --running_;
}

SizerLimits Scheduler::ForestLimits(const Sequence& sequence) const {
  SizerLimits limits;
  limits.beam_width = sequence.params.beam_width;
  limits.running = std::max(1, running_);
  limits.draft = sequence.draft;
  if (limits.draft.drafts) limits.max_depth = sequence.decoder->max_useful_depth();
  // A shape chosen by the request may fill a step. Otherwise all running sequences share the step.
  const int sharers = limits.draft.chosen ? 1 : limits.running;
  const int own_rows = static_cast<int>(sequence.decoder->roots().size());
  limits.max_nodes = std::max(0, options_.max_rows / sharers - own_rows);
  return limits;
}

}  // namespace coppice::worker
