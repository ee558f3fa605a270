#include "worker/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"

namespace coppice {
namespace {

constexpr int kAutoDepth = 4;

int AutoWidth(int beam_width) { return beam_width == 1 ? 4 : 2 * beam_width; }

int64_t BlocksOf(int64_t tokens) { return (tokens + kBlockSize - 1) / kBlockSize; }

}  // namespace

int64_t Scheduler::BlocksNeeded(const Sequence& sequence) const {
  const DecodingParams& params = sequence.params;
  const int64_t longest = static_cast<int64_t>(sequence.prompt.size()) + params.max_tokens;
  // Unshared chains of the beams: one sequence of draws has one chain; W beams have at most W.
  const int64_t chains =
      params.beam_width == 1 ? 0 : int64_t{params.beam_width} * BlocksOf(params.max_tokens);
  const int64_t width = params.draft_width > 0 ? params.draft_width : AutoWidth(params.beam_width);
  const int64_t depth = params.draft_depth > 0 ? params.draft_depth : kAutoDepth;
  const int64_t forest =
      params.method == "none" ? 0 : std::min<int64_t>(width * depth, options_.max_rows);
  // Scratch is token-granular but runs are whole blocks: every chain may leave one partly filled.
  return BlocksOf(longest) + chains + BlocksOf(forest + 2 * params.beam_width) +
         options_.scratch_blocks + params.beam_width + 1;
}

absl::Status Scheduler::CheckFits(const Sequence& sequence) const {
  const int64_t needed = BlocksNeeded(sequence);
  if (needed <= options_.kv_blocks) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the request can need ", needed,
                                                   " KV blocks of ", kBlockSize,
                                                   " tokens, a replica has ", options_.kv_blocks));
}

bool Scheduler::Admit(Sequence* sequence) {
  const int64_t needed = BlocksNeeded(*sequence);
  if (reserved_ + needed > options_.kv_blocks) return false;
  sequence->reserved_blocks = needed;
  reserved_ += needed;
  ++running_;
  return true;
}

void Scheduler::Release(Sequence* sequence) {
  if (sequence->reserved_blocks == 0) return;
  reserved_ -= sequence->reserved_blocks;
  sequence->reserved_blocks = 0;
  --running_;
}

DraftShape Scheduler::Shape(const Sequence& sequence) const {
  const DecodingParams& params = sequence.params;
  if (params.method == "none") return {};
  DraftShape shape;
  shape.width = params.draft_width > 0 ? params.draft_width : AutoWidth(params.beam_width);
  shape.depth = params.draft_depth > 0 ? params.draft_depth : kAutoDepth;
  shape.depth = std::min(shape.depth, sequence.decoder->max_useful_depth());
  const int roots = static_cast<int>(sequence.decoder->roots().size());
  const bool automatic = params.draft_width == 0;
  const int budget =
      std::max(automatic ? options_.max_rows / std::max(1, running_) : options_.max_rows, 8) -
      roots;
  if (automatic && shape.depth > 0) {
    shape.width =
        std::clamp(budget / shape.depth, std::min(shape.width, params.beam_width), shape.width);
  }
  shape.depth = std::min(shape.depth, std::max(0, (options_.max_rows - roots) / shape.width));
  return shape;
}

}  // namespace coppice
