// The engine's rounds with drafts that need no draft model (worker/suffix_drafts.h).
#include <algorithm>
#include <utility>

#include "worker/engine.h"

namespace coppice::worker {

bool Engine::HasSuffixDrafts(const Sequence& sequence) const {
  return !drafts_.configured() && suffixes_.Serve(sequence);
}

// The draft is there at once, or none is worth its rows.
void Engine::NextBySuffixes(Sequence* sequence) {
  sequence->draft_shape = {};
  const SizerLimits limits = ForestLimits(*sequence);
  if (!sizer_.Allows(SuffixDrafts::SizedAs(*sequence), limits))
    return GoPlain(sequence, NoDraftReason::kNone);
  const double begin_s = clock_.Now();
  const RoundCosts& costs = *sizer_.costs();
  const double plain_s = costs.Step(limits.plain_rows, /*alone=*/true);
  const auto gain = [&](double layers, int nodes) {
    const int rows = limits.roots + limits.running * nodes;
    const double seconds = costs.Step(rows, /*alone=*/false);
    return seconds > 0 ? layers * plain_s / seconds : layers;
  };
  const bool windows = !scheduler_.options().kv_storage.windows.empty();
  decoding::DraftForest forest = suffixes_.Propose(sequence, limits, windows, gain);
  sequence->draft_s = clock_.Now() - begin_s;
  sequence->stats.draft_ms += sequence->draft_s * 1e3;
  if (forest.size() == 0) return GoPlain(sequence, NoDraftReason::kNone);
  sizer_.CountAsked();
  int width = 0;
  for (int layer = 0; layer < forest.depth(); ++layer)
    width = std::max(width, forest.layer_begin[layer + 1] - forest.layer_begin[layer]);
  sequence->draft_shape = {width, forest.depth()};
  sequence->draft_came = sequence->suffix_draft = true;
  sequence->forest = std::move(forest);
  sequences_.Move(sequence, SequencePhase::kReady);
}

}  // namespace coppice::worker
