// Cost and gain of decoding, for one round, a sequence or a request. Fields are sums, which Merge
// adds up; means are methods. Filled by decoding/ and worker/, sent as proto::SequenceStats, shown
// by coordinator/. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coppice {

struct DecodingStats {
  std::string method = "none";  // method of speculation
  bool lossless = true;
  int64_t rounds = 0;         // rounds after the prefill
  int64_t plain_rounds = 0;   // rounds without a draft
  int64_t suffix_rounds = 0;  // rounds with one that was found in the texts of the sequence
  int64_t target_passes = 0;
  int64_t layers = 0;       // layers decided by the target passes
  int64_t beam_tokens = 0;  // tokens: W for every layer with W beams
  int64_t drafted_nodes = 0;
  int64_t accepted_nodes = 0;  // distinct forest nodes that became (part of) output beams
  std::vector<int64_t> accepted_by_layer;
  int64_t accepting_layers = 0;                     // drafted layers with an accepted node
  double draft_width_sum = 0, draft_depth_sum = 0;  // over rounds with a draft; nodes per layer
  double overlap_sum = 0;                           // sum of min(p, q) over layers whose q was sent
  int64_t overlap_layers = 0;                       // number of these layers
  int64_t cached_tokens = 0;                        // prompt tokens found in the prefix cache
  int64_t preemptions = 0;                          // times that its KV was taken away for others
  double queue_ms = 0;                              // the longest wait for admission
  double prefill_ms = 0;
  double draft_ms = 0;       // draft nodes' own time
  double draft_wait_ms = 0;  // time spent waiting for drafts
  double verify_ms = 0;      // target passes

  // Adds `other`. Keeps the method of the part that has one. Lossless only if both parts are.
  void Merge(const DecodingStats& other);

  int64_t drafted_rounds() const { return rounds - plain_rounds; }
  // Means; nullopt when there is nothing to average.
  std::optional<double> block_efficiency() const;
  std::optional<double> accepted_width() const;  // accepted nodes per accepting layer; 0: none is
  std::optional<double> draft_width() const;
  std::optional<double> draft_depth() const;
  std::optional<double> overlap() const;
};

}  // namespace coppice
