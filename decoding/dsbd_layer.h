// One layer of DSBD (dynamic-width speculative beam decoding): rejection of a layer's drafts
// against the target's joint law, ALGORITHMS.md 5.1-5.3. Law: given the width, the outputs are iid
// draws from P (3.3), whatever the drafts. Called by decoding/dsbd.cc for every layer. Pure but for
// the ChoiceSource.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "decoding/choice_source.h"
#include "decoding/layer_law.h"

namespace coppice {

// What becomes of drafts whose parent was not accepted (5.2).
enum class RemovedParents {
  kReject,       // rule E: each counts as a rejection against the restricted, unnormalised Q
  kRenormalise,  // rule N: they are dropped and Q is renormalised over the current beams
};

// W^(l): fixed, or 5.3's max(minimum, Wt) capped at maximum.
struct WidthRule {
  int fixed = 1;         // W, used when threshold is 0
  double threshold = 0;  // t of 5.3, 0 = fixed
  int minimum = 1;       // W_min
  int maximum = 1;       // W_max, >= minimum
};

struct DsbdLayerInput {
  const LayerLaw* p = nullptr;     // target law of the layer
  const LayerLaw* q = nullptr;     // proposal restricted to p's beams, row by row, not renormalised
  absl::Span<const Entry> drafts;  // drawing order, copies listed; beam -1 = removed parent
  RemovedParents rule = RemovedParents::kReject;
  WidthRule width;
};

struct DsbdOutput {
  Entry entry;
  int draft = -1;  // index of the accepted draft, or -1: drawn
};

struct DsbdLayerResult {
  std::vector<DsbdOutput> outputs;  // [width], slot order: accepted drafts first
  bool full = false;  // every output is an accepted draft: the next layer may be verified
  int tested = 0;     // drafts that met a coin or counted as a rejection
  int residual_draws = 0;
  double overlap = 0;     // sum of min(P, Q) over the current beams
  double min_margin = 0;  // nats, infinity when nothing was decided by chance
};

// Mass that q proposes after current beams (s of 5.2).
double ProposalMass(const LayerLaw& q);

DsbdLayerResult VerifyDsbdLayer(const DsbdLayerInput& input, ChoiceSource* choices);

// A layer without drafts: `width` direct draws from p (the layer after the deepest full one, and
// every plain step).
DsbdLayerResult DrawLayer(const LayerLaw& p, int width, ChoiceSource* choices);

}  // namespace coppice
