// One sequence on a worker: its decoder, its KV trie, its phase and its statistics. Only
// bookkeeping: the engine moves it from phase to phase. Owned by the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/decoding_stats.h"
#include "base/trace_context.h"
#include "decoding/beam_decoder.h"
#include "decoding/draft_size.h"
#include "decoding/forest.h"
#include "decoding/params.h"
#include "decoding/round_forest.h"
#include "model/kv/block_manager.h"
#include "node/energy/energy_shares.h"
#include "plan/candidate_row.h"
#include "proto/control.pb.h"
#include "worker/forest_sizer.h"
#include "worker/suffix_drafts.h"
#include "worker/token_scores.h"

namespace coppice::worker {

// The phase of a sequence. SequenceTable changes it and keeps the order.
enum class SequencePhase {
  kWaiting,   // not admitted, or preempted: has no KV
  kPrefill,   // has tokens to prefill: of its prompt, or again after a preemption
  kDrafting,  // waits for its forest, until draft_deadline_s
  kReady,     // can join the next pass, with a forest or without
};

// Whether a draft node has the prompt.
enum class DraftAccess {
  kNone,     // no drafts: none would pay, the request wants none, or no node takes it
  kReading,  // it received the prompt between two rounds; rounds are plain until it has read it
  kOpen,     // drafts may be requested, which opens a lost session again
};

// The row of a root, if the last step evaluated it already, as a forest node.
struct KnownRow {
  std::vector<float> whole;            // [vocab], or
  std::optional<CandidateRow> listed;  // the candidate list
  bool known() const { return !whole.empty() || listed.has_value(); }
};

struct Sequence {
  uint64_t id = 0;
  std::vector<TokenId> prompt;
  decoding::DecodingParams params;  // method resolved
  decoding::DraftSize draft;        // draft size prescribed by params
  bool quiet = false;               // StartSequence.quiet
  bool score_only = false;          // StartSequence.score_only: ends with its prompt
  TokenScores scores;
  bool timeline = false;  // StartSequence.timeline
  // StartSequence.forests, until as many are reported as the limits allow.
  bool shows_rounds = false;
  int shown_rounds = 0, shown_entries = 0;            // reported so far
  std::optional<decoding::RoundForest> round_forest;  // of the last round, if it is to be shown
  TraceContext trace;                                 // StartSequence.trace
  std::string client;                                 // StartSequence.client
  double client_weight = 1;
  std::unique_ptr<decoding::BeamDecoder> decoder;
  SequencePhase phase = SequencePhase::kWaiting;
  uint64_t phase_order = 0;    // grows with every change of phase of any sequence
  uint64_t arrival_order = 0;  // phase_order at its arrival
  int priority = 0;            // StartSequence.priority: lower values go first
  // KV that it is expected to need in all, at least what it has had; at most its bound.
  int64_t expected_blocks = 0;
  int64_t peak_blocks = 0;  // the most KV that it has had

  // By PathId: the KV of each generated path, kNoKv when it has none, kPrefixEnd when it is
  // committed.
  model::SequenceHandle kv = -1;
  std::vector<model::KvNode> kv_of_path;
  model::KvNode KvOf(decoding::PathId path) const {
    COPPICE_CHECK(path != decoding::kNoPath);
    const size_t i = Index(path);
    return i < kv_of_path.size() ? kv_of_path[i] : model::kNoKv;
  }
  void SetKv(decoding::PathId path, model::KvNode node) {
    COPPICE_CHECK(path != decoding::kNoPath);
    const size_t i = Index(path);
    if (i >= kv_of_path.size()) kv_of_path.resize(i + 1, model::kNoKv);
    kv_of_path[i] = node;
  }

  // After a preemption (worker/preemption.h): the prompt, the tokens that all beams share, and one
  // more. Then the paths of single beams, parents first, of which the first `reread_done` have KV.
  std::vector<TokenId> reread;
  std::vector<decoding::PathId> reread_paths;
  int reread_done = 0;
  // In kPrefill: all but the last of these tokens become the prefix.
  const std::vector<TokenId>& text() const { return reread.empty() ? prompt : reread; }
  int preempted_at = -1;  // layers committed at its last preemption
  bool often_preempted() const { return stats.preemptions >= 4; }
  // Scores need the row of every token, so such a prompt takes none from the prefix cache.
  bool scores_prompt() const { return scores.of_prompt && reread.empty(); }
  int scored_tokens = 0;  // of the prompt, whose scores were reported

  // [roots] In a step with a forest, known roots need no row. Their KV exists already, and since
  // the backend is batch-invariant, their logits would have the same bits.
  std::vector<KnownRow> known_roots;
  int unknown_roots() const {
    return static_cast<int>(decoder->roots().size()) -
           static_cast<int>(std::count_if(known_roots.begin(), known_roots.end(),
                                          [](const KnownRow& row) { return row.known(); }));
  }

  int rows_of_pass() const {
    return forest.size() == 0 ? static_cast<int>(decoder->roots().size())
                              : unknown_roots() + forest.size();
  }

  // The round.
  uint32_t round = 0;
  decoding::DraftForest forest;  // forest of the next step
  DraftAccess draft_access = DraftAccess::kNone;
  DraftShape draft_shape;       // requested for this round
  bool draft_came = false;      // the draft of this round was in time; its forest may be empty
  double draft_asked_s = 0;     // when the draft of this round was requested
  uint64_t draft_step = 0;      // the step after which it was requested
  double draft_due_s = 0;       // when it should be there
  double draft_overdue_s = 0;   // others may wait for it until then
  double draft_deadline_s = 0;  // after this, the round goes on without it
  std::unique_ptr<SuffixState> suffixes;  // if its drafts come from its own texts
  bool suffix_draft = false;              // the draft of this round does
  double last_verdict_s = 0;
  double draft_wait_s = 0;   // from the request for this draft until it came or was given up
  double draft_s = 0;        // the draft node's own time for it
  double draft_model_s = 0;  // the part of it in forward passes
  size_t stable_sent = 0;    // tokens already reported to the coordinator
  int layers_reported = 0;   // layers at the last look for new ones
  uint32_t updates = 0;      // reported to the coordinator
  double arrival_s = 0, admitted_s = 0;
  DecodingStats stats;                         // statistics of params.method
  node::EnergyTally energy;                    // energy of its rows on this replica
  std::vector<proto::RoundTimes> round_times;  // not yet reported
};

// Whether `a` keeps its KV longer than `b` where it is short. One that has been preempted often goes
// before all others, so it ends.
inline bool Outranks(const Sequence& a, const Sequence& b) {
  const auto rank = [](const Sequence& one) {
    return std::tuple(!one.often_preempted(), one.priority, one.arrival_order);
  };
  return rank(a) < rank(b);
}

}  // namespace coppice::worker
