#include "decoding/layer/dsbd_layer.h"

#include <algorithm>

#include "decoding/joint/residual.h"
#include "decoding/layer/dsbd_width.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

void DrawInto(sampling::Domain domain, const LayerDistribution& distribution, ChoiceSource* choices,
              LayerResult* result) {
  const Draw draw =
      choices->Choose(domain, static_cast<uint32_t>(result->outputs.size()), distribution);
  result->outputs.push_back({draw.entry, -1});
  result->min_margin = std::min(result->min_margin, draw.margin);
}

LayerDistribution Renormalised(const LayerDistribution& q, double mass) {
  LayerDistribution distribution = q;
  for (WeightedRow& row : distribution.rows) row.log_weight -= sampling::Log(mass);
  return distribution;
}

int LayerWidth(const WidthRule& rule, const LayerInput& input, int drafts, Residual* a) {
  if (rule.threshold <= 0) return input.width;
  const int threshold_width =
      WidthForThreshold(AcceptedTail(AcceptanceByDraft(a, drafts)), rule.threshold);
  const int maximum = std::max(1, rule.maximum - input.ended);
  return std::min(std::max(rule.minimum, threshold_width), maximum);
}

}  // namespace

double ProposalMass(const LayerDistribution& q, int beams) {
  double sum = 0;
  for (int b = 0; b < beams; ++b) {
    const WeightedRow& row = q.rows[b];
    if (row.sparse == nullptr) continue;
    double part = 0;
    for (double log_prob : row.sparse->log_probs) part += sampling::Exp(row.log_weight + log_prob);
    sum += part;
  }
  return sum;
}

// DSBD Algorithm 1 with errata E1 (ratio a/Q), E4 (rules N, E), E5 (completion: one draw from a,
// then P), E7 (drawing order, copies kept), E15.
LayerResult VerifyDsbdLayer(const LayerInput& input, RemovedParents rule, const WidthRule& width,
                            ChoiceSource* choices) {
  const LayerDistribution& p = *input.p;
  const int beams = static_cast<int>(p.rows.size());
  const bool renormalise = rule == RemovedParents::kRenormalise;
  int m = static_cast<int>(input.drafts.size());
  if (renormalise) {
    m = std::count_if(input.drafts.begin(), input.drafts.end(),
                      [&](Entry d) { return d.beam < beams; });
  }
  const LayerDistribution q =
      renormalise && m > 0 ? Renormalised(*input.q, ProposalMass(*input.q, beams)) : *input.q;
  Residual a(p, q);
  const uint64_t layer_hash = LayerHash(p);

  LayerResult result;
  result.min_margin = sampling::kInfinity;
  result.overlap = a.Overlap();
  const int outputs = LayerWidth(width, input, m, &a);
  for (int j = 0; j < input.drafts.size() && result.outputs.size() < outputs; ++j) {
    const Entry d = input.drafts[j];
    if (d.beam >= beams) {
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
  result.full = result.outputs.size() == outputs;
  if (!result.full && m > 0) {  // one draw t ~ a ends the draft loop, even if a is P again
    DrawInto(sampling::Domain::kResidual, a.Normalised(), choices, &result);
    ++result.residual_draws;
  }
  while (result.outputs.size() < outputs) DrawInto(sampling::Domain::kDirect, p, choices, &result);
  return result;
}

LayerResult DrawLayer(const LayerDistribution& p, int width, ChoiceSource* choices) {
  LayerResult result;
  result.min_margin = sampling::kInfinity;
  while (result.outputs.size() < width) DrawInto(sampling::Domain::kDirect, p, choices, &result);
  return result;
}

}  // namespace coppice::decoding
