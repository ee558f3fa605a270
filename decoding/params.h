// The target law of one sequence and how to speculate on it: what the API validates and the worker
// obeys. Every member is a row of decoding/parameter_table.cc.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/types.h"

namespace coppice::decoding {

struct MethodRow;

// docs/algorithms.md 3: 3.1, 3.3, 3.4, 3.5. Greedy is multinomial at temperature 0.
enum class DecodingKind {
  kMultinomial,
  kBeamSampling,
  kBeamSamplingWithoutReplacement,
  kBeamSearch
};
absl::string_view DecodingKindName(DecodingKind kind);  // the API's spelling
absl::StatusOr<DecodingKind> ParseDecodingKind(absl::string_view name);

// Where the warp acts on beams (docs/algorithms.md 1): on each row, or on the flat scores of a
// whole layer.
enum class WarpMode { kRow, kRowRaw, kJoint, kRowCut };
absl::string_view WarpModeName(WarpMode mode);  // "row", "row_raw", "joint", "rowcut"
absl::StatusOr<WarpMode> ParseWarpMode(absl::string_view name);
constexpr bool IsJoint(WarpMode mode) {
  return mode == WarpMode::kJoint || mode == WarpMode::kRowCut;
}

// Smallest non-zero temperature. Dividing logits by less may overflow to infinity and then NaN.
inline constexpr double kLeastTemperature = 1e-6;

// docs/algorithms.md 1. Neutral: temperature 1, top_k 0, top_p 1, min_p 0, no bias.
struct WarpParams {
  double temperature = 1.0;                            // 0 = one-hot on the argmax
  int top_k = 0;                                       // 0 = off
  double top_p = 1.0;                                  // 0 or 1 = off
  double min_p = 0.0;                                  // 0 = off
  std::vector<std::pair<TokenId, double>> logit_bias;  // nats, added first; -inf bans a token
  WarpMode mode = WarpMode::kRow;
};

// Far above any policy; keeps sizes computed from parameters small.
inline constexpr int kMostBeams = 1 << 16;

struct DecodingParams {
  DecodingKind kind = DecodingKind::kMultinomial;
  const MethodRow* method = nullptr;  // what decides (decoding/method.h); nullptr = the first that
                                      // serves the rest, see ResolveMethod
  bool plain = false;                 // the target alone: the method decides, nothing is drafted
  int beam_width = 1;                 // W
  int num_hypotheses = 1;             // n best returned
  int max_tokens = 256;               // per hypothesis, EOS counted
  int min_tokens = 0;                 // before it the stop ids have probability 0
  uint64_t seed = 0;
  double length_penalty = 1.0;    // alpha of docs/algorithms.md 8
  bool stop_when_full = true;     // policy FIRST; false = EXACT
  bool refill = true;             // beam_sampling only
  bool set_semantics = false;     // beam_sampling: equal paths count once (3.3), not m_b times
  std::vector<TokenId> stop_ids;  // ids that end a hypothesis (EOS); empty = none
  WarpParams warp;
  int draft_width = 0;          // W_S; 0 = auto: 4 for W = 1, else 2 W
  int draft_depth = 0;          // gamma; 0 = auto: 4
  int draft_support = 64;       // K
  double width_threshold = 0;   // t of 5.3; 0 = fixed width
  int min_width = 1;            // W_min of 5.3
  std::string draft_tree;       // static topology of a draft tree (decoding/topology.h); "" = auto
  int draft_beams = 4;          // mjsd: width of the draft's beam search; mjgd: M of the target's
  double mjsd_threshold = 0.1;  // tau of 6.2, in [0, 1]
  double fallback_threshold = 0.5;  // tau1 of 6.3: drafting stops where max q is below it
  double rollback_threshold = 2;    // tau2 of 6.3, nats
  int joint_tokens = 4;             // g of 6.1
};

// The draft shape when the request leaves it open (draft_width or draft_depth 0): the first one,
// and the largest depth.
int AutoDraftWidth(int beam_width);
inline constexpr int kAutoDraftDepth = 4;
inline constexpr int kMaxAutoDraftDepth = 6;

// Whether a token ends its hypothesis.
bool IsStopId(absl::Span<const TokenId> stop_ids, TokenId token);
bool IsStopId(const DecodingParams& params, TokenId token);

// The most beams that can be alive at once; each is a row of a plain pass.
int MostBeams(const DecodingParams& params);

// The most KV blocks of block_size tokens that a sequence can need: its longest hypothesis, the
// chains of its other beams if they never coalesce, one forest, and a partly filled block for each.
// Admission reserves this many.
int64_t KvBlocksBound(const DecodingParams& params, int64_t prompt_tokens, int block_size);

}  // namespace coppice::decoding
