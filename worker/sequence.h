// One sequence on a worker: its decoder, its KV trie, what it waits for, and its statistics. Pure
// bookkeeping: the engine moves it from state to state. Owned by the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/draft_size.h"
#include "decoding/forest.h"
#include "decoding/params.h"
#include "model/block_manager.h"
#include "worker/forest_sizer.h"

namespace coppice {

enum class SequenceState {
  kWaiting,   // not admitted: no KV reserved
  kPrefill,   // prompt tokens left to run
  kDrafting,  // its forest is on the way
  kReady,     // has what the next pass needs (a forest, perhaps an empty one)
  kFinished,
};

struct SequenceStatistics {
  uint32_t rounds = 0, plain_rounds = 0, target_passes = 0, layers = 0;
  uint64_t beam_tokens = 0, drafted_nodes = 0, accepted_nodes = 0;
  std::vector<uint64_t> accepted_by_layer;
  uint64_t drafted_layers_with_acceptance = 0;
  double draft_width_sum = 0, draft_depth_sum = 0;  // over rounds with a draft
  double overlap_sum = 0;
  uint64_t overlap_layers = 0;
  int cached_tokens = 0;
  double arrival_s = 0, admitted_s = 0, prefill_end_s = 0, first_token_s = 0, end_s = 0;
  double draft_ms = 0, draft_wait_ms = 0, verify_ms = 0;
};

struct Sequence {
  uint64_t id = 0;
  std::vector<TokenId> prompt;
  DecodingParams params;  // method resolved
  DraftSize draft;        // of params
  bool lossless = true;
  bool quiet = false;  // StartSequence.quiet
  std::unique_ptr<BeamDecoder> decoder;
  SequenceState state = SequenceState::kWaiting;
  int64_t reserved_blocks = 0;

  // KV. kv_of_path[p]: the trie node of generated path p; kNoKv when it has none. Committed paths
  // are kPrefixEnd.
  static constexpr KvNode kNoKv = -2;
  SequenceHandle kv = -1;
  std::vector<KvNode> kv_of_path;
  KvNode KvOf(PathId path) const {
    return path < static_cast<PathId>(kv_of_path.size()) ? kv_of_path[path] : kNoKv;
  }
  void SetKv(PathId path, KvNode node) {
    if (path >= static_cast<PathId>(kv_of_path.size())) kv_of_path.resize(path + 1, kNoKv);
    kv_of_path[path] = node;
  }

  // Logits of roots that the last pass evaluated as forest nodes; [roots], empty = to be evaluated.
  // With a forest they need no row in the next pass: their KV is there and batch-invariance makes
  // the bits the same.
  std::vector<std::vector<float>> root_logits;
  int unknown_roots() const {
    return static_cast<int>(decoder->roots().size()) -
           static_cast<int>(std::count_if(root_logits.begin(), root_logits.end(),
                                          [](const auto& row) { return !row.empty(); }));
  }

  // The round.
  uint32_t round = 0;
  DraftForest forest;                    // of the next pass
  std::optional<DraftShape> next_shape;  // of the round after this one, when chosen already
  DraftShape draft_shape;                // asked for this round
  bool draft_came = false;   // the draft of this round was in time; its forest may be empty
  double draft_asked_s = 0;  // when the draft of this round was asked for
  double last_verdict_s = 0;
  double draft_wait_s = 0;   // from asking for this round's draft to its arrival (or giving it up)
  double draft_s = 0;        // the draft node's own time for it
  double draft_model_s = 0;  // of which forward passes
  size_t stable_sent = 0;    // tokens already reported to the coordinator
  SequenceStatistics stats;
};

}  // namespace coppice
