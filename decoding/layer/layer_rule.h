// How one layer of a joint distribution is decided, with drafts or without. The methods of
// docs/algorithms.md 5.1-5.5 differ only in this rule. decoding/layer/layered_decoder.h runs the
// layers. Rules are pure except for the ChoiceSource.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/joint/choice_source.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/sequence/layer_ends.h"

namespace coppice::decoding {

// How to treat drafts whose parent is not a current beam (5.2).
enum class RemovedParents {
  kReject,       // rule E: each counts as a rejection against the restricted, unnormalised Q
  kRenormalise,  // rule N: they are dropped and Q is renormalised over the current beams
};

struct LayerInput {
  const LayerDistribution* p = nullptr;  // target distribution of the layer
  // The proposal, mass 1: first the beams of p in order (without a row where nothing was proposed),
  // then the removed parents.
  const LayerDistribution* q = nullptr;
  absl::Span<const Entry> drafts;  // drawing order, copies listed; beams are rows of q
  int width = 1;                   // outputs of a layer of fixed width
  int ended = 0;                   // slots of the request that ended and are not refilled
  LayerEnds ends;                  // end tokens of the beams of p
};

struct RuleOutput {
  Entry entry;
  int draft = -1;  // index of the accepted draft, or -1: drawn
};

struct LayerResult {
  std::vector<RuleOutput> outputs;  // slot order
  bool full = false;                // the drafts of the next layer may be verified
  int tested = 0;                   // drafts that met a coin or counted as a rejection
  int residual_draws = 0;
  double overlap = 0;     // sum of min(P, Q) over the current beams
  double min_margin = 0;  // nats, infinity when nothing was decided by chance
};

class LayerRule {
 public:
  virtual ~LayerRule() = default;
  virtual LayerResult Verify(const LayerInput& input, ChoiceSource* choices) const = 0;
  // Decides a layer without drafts: the one after the deepest verified layer, and in every plain
  // round.
  virtual LayerResult Draw(const LayerDistribution& p, int width, const LayerEnds& ends,
                           ChoiceSource* choices) const = 0;
};

}  // namespace coppice::decoding
