#include "lab/bench/cuda/predicted_drafts.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"

namespace coppice::bench {
namespace {

using kernels::cuda::fake::Counted;

constexpr int kKept = 32000;  // ids of a reduced head

constexpr int64_t QkvBytes(const ModelShape& s) {
  return int64_t{s.qkv_columns()} * s.qkv_inputs() * kValueBytes;
}
constexpr int64_t HeadBytes(const ModelShape& s) {
  return int64_t{s.head_rows()} * s.hidden * kValueBytes;
}

bool IsProduct(const Counted& work) {
  return absl::StartsWith(work.name, "product ") || work.name == "skinny product";
}

// Bytes of 32 weights.
constexpr int64_t GroupBytes(WeightFormat format) {
  return format == WeightFormat::kBf16 ? 64 : format == WeightFormat::kInt8 ? 34 : 18;
}

// Instructions of the warps of a product with weights in blocks: 267 for 2,048 weights and 8 rows, 393
// for 64, which is the most at a time (machine code of nvcc 13.0, sm_90; 4 bits take 3 % more).
int64_t BlockInstructions(int64_t weights, int64_t flops) {
  const int64_t rows = flops / (2 * weights), passes = (rows + 63) / 64;
  const int64_t of_pass = std::clamp<int64_t>(rows, 8, 64);
  return weights / 2048 * passes * (267 + (393 - 267) * (of_pass - 8) / (64 - 8));
}

}  // namespace

std::vector<PredictedDraft> PredictedDrafts() {
  const ModelShape whole = kDrafts[0];
  ModelShape reduced = whole;
  reduced.tied = false;
  reduced.kept = std::min(kKept, kVocabulary / 4);
  const ModelShape head = {"head",   1,        kHidden, kIntermediate, kVocabulary, kQHeads,
                           kKvHeads, kHeadDim, false,   reduced.kept,  true};
  return {
      {"1B, bf16", whole},
      {"1B, 8 bits, head of 32k ids", reduced, WeightFormat::kInt8},
      {"1B, 4 bits, head of 32k ids", reduced, WeightFormat::kInt4},
      {"head on states, bf16", head, WeightFormat::kBf16},
      {"head on states, 8 bits", head, WeightFormat::kInt8},
  };
}

Work WithFormat(Work work, const ModelShape& shape, WeightFormat format) {
  if (format == WeightFormat::kBf16) return work;
  bool overlaps = false;
  for (Counted& piece : work) {
    piece.overlaps |= IsProduct(piece) && overlaps;
    overlaps = piece.overlaps;
    if (!IsProduct(piece)) continue;
    const int64_t bytes = piece.cost.cold_bytes;  // not 0: matrices have weights
    const bool edge = bytes == QkvBytes(shape) || bytes == HeadBytes(shape);
    const int64_t kept = bytes / 64 * GroupBytes(edge ? WeightFormat::kInt8 : format);
    piece.cost.cold_bytes = kept;
    piece.cost.bytes -= bytes - kept;
    piece.cost.block_bytes = piece.cost.block_bytes * kept / bytes;
    piece.cost.early_bytes = piece.cost.early_bytes * kept / bytes;
    piece.cost.instructions = BlockInstructions(bytes / kValueBytes, piece.cost.flops);
  }
  return work;
}

Work FirstLevels(const Work& forests, int levels) {
  const auto is_choice = [](const Counted& work) { return work.name == "choice of levels"; };
  auto end = forests.begin();
  for (int level = 0; level < levels && end != forests.end(); ++level)
    end = std::next(std::find_if(end, forests.end(), is_choice));
  Work result(forests.begin(), end);
  const auto last = std::find_if(forests.rbegin(), forests.rend(), is_choice).base();
  result.insert(result.end(), std::max(end, last), forests.end());
  return result;
}

}  // namespace coppice::bench
