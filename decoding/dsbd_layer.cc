#include "decoding/dsbd_layer.h"

#include <algorithm>
#include <limits>

#include "base/deterministic_math.h"
#include "decoding/dsbd_width.h"
#include "decoding/residual.h"

namespace coppice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void DrawInto(Domain domain, const LayerLaw& law, ChoiceSource* choices, DsbdLayerResult* result) {
  const Draw draw = choices->Choose(domain, static_cast<uint32_t>(result->outputs.size()), law);
  result->outputs.push_back({draw.entry, -1});
  result->min_margin = std::min(result->min_margin, draw.margin);
}

LayerLaw Renormalised(const LayerLaw& q, double mass) {
  LayerLaw law = q;
  for (WeightedRow& row : law.rows) row.log_weight -= Log(mass);
  return law;
}

int LayerWidth(const WidthRule& rule, int drafts, Residual* a) {
  if (rule.threshold <= 0) return rule.fixed;
  const int threshold_width =
      WidthForThreshold(AcceptedTail(AcceptanceByDraft(a, drafts)), rule.threshold);
  return std::min(std::max(rule.minimum, threshold_width), rule.maximum);
}

}  // namespace

double ProposalMass(const LayerLaw& q) {
  double sum = 0;
  for (const WeightedRow& row : q.rows) {
    if (row.sparse == nullptr) continue;
    double part = 0;
    for (double log_prob : row.sparse->log_probs) part += Exp(row.log_weight + log_prob);
    sum += part;
  }
  return sum;
}

// DSBD Algorithm 1 with errata E1 (ratio a/Q), E4 (rules N, E), E5 (completion: one draw from a,
// then P), E7 (drawing order, copies kept), E15.
DsbdLayerResult VerifyDsbdLayer(const DsbdLayerInput& input, ChoiceSource* choices) {
  const LayerLaw& p = *input.p;
  const bool renormalise = input.rule == RemovedParents::kRenormalise;
  int m = static_cast<int>(input.drafts.size());
  if (renormalise)
    m = std::count_if(input.drafts.begin(), input.drafts.end(),
                      [](Entry d) { return d.beam >= 0; });
  const LayerLaw q =
      renormalise && m > 0 ? Renormalised(*input.q, ProposalMass(*input.q)) : *input.q;
  Residual a(p, q);
  const uint64_t layer_hash = LayerHash(p);

  DsbdLayerResult result;
  result.min_margin = kInfinity;
  result.overlap = a.Overlap();
  const int width = LayerWidth(input.width, m, &a);
  for (int j = 0; j < input.drafts.size() && result.outputs.size() < width; ++j) {
    const Entry d = input.drafts[j];
    if (d.beam < 0) {
      if (!renormalise) {
        a.Reject();
        ++result.tested;
      }
      continue;
    }
    ++result.tested;
    const Coin coin = choices->Accept(layer_hash, j, a.Target(d), a.Proposal(d));
    result.min_margin = std::min(result.min_margin, coin.margin);
    if (coin.accepted) {
      result.outputs.push_back({d, j});
      a.Reset();
    } else {
      a.Reject();
    }
  }
  result.full = result.outputs.size() == width;
  if (!result.full && m > 0) {  // t ~ a closes the draft loop, even when a is P again
    DrawInto(Domain::kResidual, a.Law(), choices, &result);
    ++result.residual_draws;
  }
  while (result.outputs.size() < width) DrawInto(Domain::kDirect, p, choices, &result);
  return result;
}

DsbdLayerResult DrawLayer(const LayerLaw& p, int width, ChoiceSource* choices) {
  DsbdLayerResult result;
  result.min_margin = kInfinity;
  while (result.outputs.size() < width) DrawInto(Domain::kDirect, p, choices, &result);
  return result;
}

}  // namespace coppice
