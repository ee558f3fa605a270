// One DSBD layer with its draft distribution, verified under enumerated choices.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "decoding/layer/dsbd_layer.h"
#include "lab/exact/beam_distribution.h"
#include "lab/exact/enumerate_choices.h"
#include "tests/testing/joint_layer.h"

namespace coppice::decoding {

inline test::ExactDistribution IidDistribution(const LayerDistribution& p, int width) {
  test::ExactDistribution distribution;
  test::VisitLayerOutcomes(p, width, /*with_replacement=*/true,
                           [&](const std::vector<Entry>& entries, double probability) {
                             std::vector<uint64_t> outcome;
                             for (const Entry& entry : entries)
                               outcome.push_back(test::joint_layer::Key(entry));
                             distribution[outcome] += probability;
                           });
  return distribution;
}

// The largest distance from iid P, over all widths that occur, of the distribution given the width.
inline double WorstGivenWidth(const test::ExactDistribution& distribution,
                              const LayerDistribution& p) {
  std::map<size_t, double> mass;
  for (const auto& [outcome, probability] : distribution) mass[outcome.size()] += probability;
  double worst = 0;
  for (const auto& [width, total] : mass) {
    test::ExactDistribution given;
    for (const auto& [outcome, probability] : distribution) {
      if (outcome.size() == width) given[outcome] = probability / total;
    }
    worst = std::max(worst,
                     test::LargestDifference(given, IidDistribution(p, static_cast<int>(width))));
  }
  return worst;
}

class DsbdLayer : public testing::Test {
 protected:
  void Use(const test::joint_layer::Config& config) {
    layer_ = test::joint_layer::MakeLayer(config.target, config.draft, config.draft_target);
    test::joint_layer::Bind(&layer_);
    arranged_ = test::joint_layer::ArrangedProposal(layer_);
  }
  LayerResult Run(const std::vector<Entry>& drafts, RemovedParents rule, int width,
                  ChoiceSource* choices, const WidthRule& rule_of_width = {}) {
    return VerifyDsbdLayer({&layer_.p, &arranged_, drafts, width}, rule, rule_of_width, choices);
  }
  bool IsRemoved(Entry draft) const { return draft.beam >= layer_.p.rows.size(); }
  test::joint_layer::Layer layer_;
  LayerDistribution arranged_;
};

}  // namespace coppice::decoding
