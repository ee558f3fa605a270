#include "decoding/params.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "decoding/draft_size.h"
#include "decoding/method.h"

namespace coppice::decoding {

int AutoDraftWidth(int beam_width) { return beam_width == 1 ? 4 : 2 * beam_width; }

void SetPrompt(absl::Span<const TokenId> prompt, DecodingParams* params) {
  if (const int size = params->sampling.no_repeat_ngram_size; size > 0)
    params->prompt_ngrams = std::make_shared<sampling::RepeatedNgrams>(prompt, size);
  if (params->sampling.repetition_penalty == 1) return;
  auto ids = std::make_shared<std::vector<TokenId>>(prompt.begin(), prompt.end());
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
  params->prompt_ids = std::move(ids);
}

bool IsStopId(absl::Span<const TokenId> stop_ids, TokenId token) {
  return std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end();
}

bool IsStopId(const DecodingParams& params, TokenId token) {
  return IsStopId(params.stop_ids, token);
}

int LayerWidth(const DecodingParams& params, int layer) {
  const std::vector<int>& widths = params.width_schedule;
  if (widths.empty()) return params.beam_width;
  return widths[std::min(static_cast<size_t>(layer), widths.size()) - 1];
}

int WidestFrom(const DecodingParams& params, int layer) {
  int widest = LayerWidth(params, layer);
  for (; layer < static_cast<int>(params.width_schedule.size()); ++layer)
    widest = std::max(widest, LayerWidth(params, layer + 1));
  return widest;
}

int MostBeams(const DecodingParams& params) {
  // 5.3: a dynamic width may be larger than W, up to the number of drafts of a layer.
  if (params.width_threshold > 0) {
    const int drafts =
        params.draft_width > 0 ? params.draft_width : AutoDraftWidth(params.beam_width);
    return std::max({params.beam_width, params.min_width, drafts});
  }
  // A method that drafts nothing but reads draft_beams (6.1) searches with the target itself.
  const MethodRow* row = params.method;
  const bool searches =
      row != nullptr && row->form == DraftForm::kNone && row->reads("draft_beams");
  return searches ? std::max(params.beam_width, params.draft_beams) : params.beam_width;
}

int64_t KvPagesBound(const DecodingParams& params, int64_t prompt_tokens,
                     const KvStorage& storage) {
  constexpr int64_t kSlack = 5;
  const int block_size = storage.block_size;
  const auto blocks = [&](int64_t tokens) { return (tokens + block_size - 1) / block_size; };
  const int64_t beams = MostBeams(params);
  // 6.1: all but one of the target's own beams end after joint_tokens layers.
  const MethodRow* row = params.method;
  const int branch = row != nullptr && row->reads("joint_tokens")
                         ? std::min(params.max_tokens, params.joint_tokens)
                         : params.max_tokens;
  int64_t chains = beams == 1 ? 0 : beams * blocks(branch);
  if (!params.width_schedule.empty()) {  // the beams of a layer have as many tokens as its number
    chains = LayerWidth(params, branch) * blocks(branch);
    const int listed = std::min(branch, static_cast<int>(params.width_schedule.size()));
    for (int layer = 1; layer <= listed; ++layer)
      chains = std::max(chains, LayerWidth(params, layer) * blocks(layer));
  }
  const DraftSize draft = DraftSizeOf(params);
  const int width = draft.width > 0 ? draft.width : AutoDraftWidth(params.beam_width);
  const int depth = draft.depth > 0 ? draft.depth : kMaxAutoDraftDepth;
  const int64_t forest = draft.drafts ? draft.Nodes(width, depth) : 0;
  const int64_t prefix = blocks(prompt_tokens + params.max_tokens);
  const int64_t rest = chains + blocks(forest + 2 * beams) + beams + kSlack;
  if (storage.windows.empty()) return prefix + rest;
  // A verdict adds at most a branch to the prefix, and of this no more is kept than a window.
  const int64_t added = beams == 1 ? depth + 1 : branch;
  int64_t pages = 0;
  for (const int64_t window : storage.windows) {
    const int64_t step = std::max<int64_t>(storage.step_tokens, std::min(added, window));
    const int64_t seen = blocks(window) + 1 + blocks(step) + 1;
    pages += (window == 0 ? prefix : std::min(prefix, seen)) + rest;
  }
  return pages;
}

}  // namespace coppice::decoding
