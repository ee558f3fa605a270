#include "worker/scheduler.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "worker/client_queues.h"

namespace coppice::worker {

int64_t Scheduler::BlocksBound(const Sequence& sequence) const {
  return decoding::KvPagesBound(sequence.params, static_cast<int64_t>(sequence.prompt.size()),
                                options_.kv_storage);
}

int64_t Scheduler::BlocksOfStep(const Sequence& sequence) const {
  const int64_t groups = std::max<int64_t>(1, options_.kv_storage.windows.size());
  return groups * (1 + decoding::MostBeams(sequence.params));
}

absl::Status Scheduler::CheckFits(const Sequence& sequence) const {
  if (const int beams = decoding::MostBeams(sequence.params); beams > options_.max_rows) {
    return absl::ResourceExhaustedError(
        absl::StrCat(beams, " beams do not fit in a forward pass of ", options_.max_rows, " rows"));
  }
  const int64_t needed = BlocksBound(sequence);
  if (needed <= options_.kv_blocks) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the request can need ", needed, " KV ",
                   options_.kv_storage.windows.empty() ? "blocks" : "pages", " of ",
                   options_.kv_storage.block_size, " tokens, a replica has ", options_.kv_blocks));
}

struct Scheduler::Round {
  KvRoom room;
  std::vector<Sequence*> admitted;
  absl::flat_hash_map<const Sequence*, int64_t> blocks;  // of those admitted
  Sequence* outranked = nullptr;  // FirstBelow the priority that is served now

  bool Has(const Sequence* sequence) const { return blocks.contains(sequence); }
  bool IsNewcomer(const Sequence& sequence) const {
    const auto its = [&](const Sequence* other) { return other->client == sequence.client; };
    return absl::c_none_of(room.running, its) && absl::c_none_of(admitted, its);
  }
  bool HasRoom(const Sequence& sequence, int64_t needed) const {
    return needed <= room.blocks || (needed <= room.unclaimed && IsNewcomer(sequence));
  }
};

bool Scheduler::Admit(Sequence* sequence, Round* round) {
  const int64_t needed = round->room.needs(*sequence);
  if (running_ > 0 && !round->HasRoom(*sequence, needed)) {
    if (!passed_over_) passed_over_ = sequence->id;
    return false;
  }
  round->room.blocks -= needed;
  round->room.unclaimed -= needed;
  round->blocks[sequence] = needed;
  round->admitted.push_back(sequence);
  ++running_;
  if (round->outranked != nullptr && round->outranked->arrival_order < sequence->arrival_order)
    outranked_.Passed(static_cast<double>(needed));
  if (passed_over_ == sequence->id) {
    passed_over_.reset();
    passed_by_blocks_ = 0;
  } else if (passed_over_) {
    passed_by_blocks_ += needed;
  }
  return true;
}

void Scheduler::AdmitClass(absl::Span<Sequence* const> waiting, Round* round) {
  const std::vector<ClientQueue> queues = ByClient(waiting);
  std::vector<size_t> tried(queues.size());
  std::vector<bool> waits(queues.size());
  turns_.Begin(Askers(queues));
  while (const std::optional<int> next = AllWait() ? std::nullopt : turns_.First()) {
    const std::vector<Sequence*>& its = queues[*next].sequences;
    if (tried[*next] == its.size()) {
      turns_.Leave(*next, waits[*next]);
      continue;
    }
    Sequence* sequence = its[tried[*next]++];
    if (round->Has(sequence) || Admit(sequence, round)) {
      turns_.Give(*next, static_cast<double>(round->blocks.at(sequence)));
    } else {
      waits[*next] = true;
    }
  }
  turns_.End();
}

// Of those with a higher value of `priority` that still wait, the one that came first; nullptr: none.
Sequence* Scheduler::FirstBelow(int priority, absl::Span<Sequence* const> waiting,
                                const Round& round) {
  Sequence* first = nullptr;
  for (Sequence* sequence : waiting) {
    if (sequence->priority <= priority || round.Has(sequence)) continue;
    if (first == nullptr || sequence->arrival_order < first->arrival_order) first = sequence;
  }
  return first;
}

std::vector<Sequence*> Scheduler::AdmitByTurns(absl::Span<Sequence* const> waiting, KvRoom room) {
  Round round{room, {}, {}, nullptr};
  const auto passed_over = std::find_if(
      waiting.begin(), waiting.end(), [this](const Sequence* s) { return s->id == passed_over_; });
  if (passed_over == waiting.end()) {  // no sequence was passed over, or it was cancelled
    passed_over_.reset();
    passed_by_blocks_ = 0;
  }
  if (AllWait() && !Admit(*passed_over, &round)) return {};
  std::map<int, std::vector<Sequence*>> classes;  // by priority
  for (Sequence* sequence : waiting) classes[sequence->priority].push_back(sequence);
  if (classes.size() < 2) outranked_.Reset();
  for (const auto& [priority, its] : classes) {
    round.outranked = FirstBelow(priority, waiting, round);
    if (round.outranked != nullptr && outranked_.Due()) {
      // Without room all wait for it, unless others are passing another one already.
      const bool first_passed = !passed_over_;
      Sequence* const outranked = std::exchange(round.outranked, nullptr);
      if (Admit(outranked, &round)) {
        outranked_.Paid(static_cast<double>(round.blocks.at(outranked)));
      } else if (first_passed) {
        passed_by_blocks_ = options_.kv_blocks;
      }
      round.outranked = FirstBelow(priority, waiting, round);
    }
    AdmitClass(its, &round);
  }
  return std::move(round.admitted);
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
