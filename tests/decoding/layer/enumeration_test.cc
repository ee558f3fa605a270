// Whole DSBD decodes by the production drafter, decoder and pool, with all choices enumerated. The
// exact distribution of all layers equals the closed distribution of beam sampling to 1e-12
// (tests/decoding/README.md 1), and wrong variants differ from it.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "gtest/gtest.h"
#include "lab/exact/layered_distribution.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

test::LayeredSetting HashLmSetting(int vocab, int width, int draft_width, int draft_depth,
                                   int layers) {
  test::LayeredSetting setting;
  setting.params.kind = sampling::DecodingKind::kBeamSampling;
  setting.params.method = FindMethod("dsbd");
  setting.params.beam_width = width;
  setting.params.max_tokens = layers;
  setting.params.stop_when_full = true;
  setting.draft_width = draft_width;
  setting.draft_depth = draft_depth;
  const test::HashLm lm{vocab, 47, 3, 1136};
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  const test::HashLm other{vocab, 1136, 3, 0};  // as poor a draft as an unrelated model makes
  setting.draft = [other](uint64_t hash) { return other.TargetLogProbs(hash); };
  return setting;
}

void ExpectExact(const test::LayeredSetting& setting, const std::string& what) {
  const test::ExactDistribution distribution = test::LayeredDistribution(setting);
  double sum = 0;
  for (const auto& [outcome, probability] : distribution) sum += probability;
  EXPECT_NEAR(sum, 1.0, 1e-12) << what;
  EXPECT_LT(test::LargestDifference(distribution, test::ClosedFixedWidthDistribution(setting)),
            1e-12)
      << what;
}

TEST(DsbdEnumeration, TwoLayersFromThePromptAreBeamSampling) {
  struct Size {
    int vocab, width, draft_width, draft_depth;
  };
  for (const Size& size :
       {Size{2, 2, 2, 1}, {2, 2, 3, 1}, {2, 3, 3, 1}, {3, 2, 2, 1}, {4, 1, 3, 1}, {3, 1, 2, 1}}) {
    for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
      test::LayeredSetting setting =
          HashLmSetting(size.vocab, size.width, size.draft_width, size.draft_depth, 2);
      setting.removed = rule;
      ExpectExact(setting,
                  absl::StrCat("V ", size.vocab, " W ", size.width, " W_S ", size.draft_width));
    }
  }
}

// There are three layers: two drafted layers are verified in one round, and the third is drawn.
TEST(DsbdEnumeration, TwoDraftedLayersWithRemovedParentsAreBeamSampling) {
  for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
    test::LayeredSetting setting = HashLmSetting(2, 1, 2, 2, 3);
    setting.removed = rule;
    ExpectExact(setting, "W 1, gamma 2");
  }
}

// A head on the target's hidden states has other rows for a path below a root than at one, and the
// rows of a path change from round to round. What it ships are the rows that it drew from, so
// nothing else may matter.
TEST(DsbdEnumeration, RowsThatDifferBelowTheRootsAreBeamSampling) {
  for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
    test::LayeredSetting setting = HashLmSetting(2, 2, 2, 2, 3);
    const test::HashLm own{2, 77, 3, 0};
    setting.draft_below = [own](uint64_t hash) { return own.TargetLogProbs(hash); };
    setting.removed = rule;
    ExpectExact(setting, "a head, gamma 2");
  }
}

// Decodes that start from several root beams: with different weights, and with a beam of
// multiplicity 2.
TEST(DsbdEnumeration, DecodeFromWeightedBeamsIsBeamSampling) {
  test::LayeredSetting setting = HashLmSetting(2, 2, 2, 2, 3);
  setting.start = {{{0}, sampling::Log(2.0 / 3)}, {{1}, sampling::Log(1.0 / 3)}};
  ExpectExact(setting, "two beams");
  setting.start = {
      {{0}, sampling::Log(0.5)}, {{1}, sampling::Log(0.25)}, {{0}, sampling::Log(0.5)}};
  setting.params.beam_width = 3;
  setting.draft_depth = 1;
  ExpectExact(setting, "multiplicity 2");
}

// Distributions over the first two layers. The second drafted layer is verified in the same round,
// since max_tokens leaves room.
TEST(DsbdEnumeration, SecondDraftedLayerIsBeamSamplingUnderBothRules) {
  for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
    test::LayeredSetting setting = HashLmSetting(2, 2, 2, 2, 3);
    setting.removed = rule;
    ExpectExact(setting, "gamma 2");
  }
}

TEST(DsbdEnumeration, StopIdsRefillOrNotAreBeamSampling) {
  for (bool refill : {true, false}) {
    for (int min_tokens : {0, 2}) {
      test::LayeredSetting setting = HashLmSetting(3, 2, 2, 1, 2);
      setting.params.stop_ids = {0};
      setting.params.refill = refill;
      setting.params.min_tokens = min_tokens;
      ExpectExact(setting, absl::StrCat("refill ", refill, " min_tokens ", min_tokens));
      setting = HashLmSetting(2, 2, 2, 2, 3);
      setting.params.stop_ids = {1};
      setting.params.refill = refill;
      setting.params.min_tokens = min_tokens;
      ExpectExact(setting, absl::StrCat("gamma 2, refill ", refill, " min_tokens ", min_tokens));
    }
  }
}

TEST(DsbdEnumeration, SamplingsAreBeamSampling) {
  for (sampling::SamplingScope mode :
       {sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw}) {
    test::LayeredSetting setting = HashLmSetting(4, 2, 2, 1, 2);
    setting.params.sampling.temperature = 0.7;
    setting.params.sampling.top_k = 2;
    setting.params.sampling.logit_bias = {{1, 0.5}};
    setting.params.sampling.mode = mode;
    ExpectExact(setting, "top_k 2");
  }
}

// JOINT and ROWCUT: P is processed over the whole layer. The proposal is processed over the draft's
// own layer.
TEST(DsbdEnumeration, JointSamplingsAndSetSemanticsAreBeamSampling) {
  for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
    for (sampling::SamplingScope mode :
         {sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut}) {
      test::LayeredSetting setting = HashLmSetting(3, 2, 2, 1, 2);
      setting.removed = rule;
      setting.params.sampling.mode = mode;
      setting.params.sampling.temperature = 0.7;
      setting.params.sampling.top_k = mode == sampling::SamplingScope::kJoint ? 4 : 2;
      ExpectExact(setting, absl::StrCat(sampling::SamplingScopeName(mode), " top_k"));
      setting = HashLmSetting(2, 2, 2, 2, 3);
      setting.removed = rule;
      setting.params.sampling.mode = mode;
      setting.params.sampling.temperature = 1.5;
      setting.params.sampling.top_p = 0.9;
      setting.params.stop_ids = {1};
      ExpectExact(setting, absl::StrCat(sampling::SamplingScopeName(mode), " top_p"));
    }
    test::LayeredSetting setting = HashLmSetting(2, 3, 2, 1, 2);
    setting.removed = rule;
    setting.params.set_semantics = true;
    ExpectExact(setting, "set semantics");
  }
}

TEST(DsbdEnumeration, ExtremeRowsAreBeamSampling) {
  const double none = -std::numeric_limits<double>::infinity();
  const test::LogProbsOf low = [&](uint64_t) {
    return std::vector<double>{sampling::Log(0.75), sampling::Log(0.25), none, none};
  };
  const test::LogProbsOf high = [&](uint64_t) {
    return std::vector<double>{none, none, sampling::Log(0.5), sampling::Log(0.5)};
  };
  const test::LogProbsOf one = [&](uint64_t hash) {
    std::vector<double> row(4, none);
    row[hash % 4] = 0;
    return row;
  };
  for (const auto& [target, draft] :
       {std::pair(low, high), std::pair(low, low), std::pair(low, one), std::pair(one, low),
        std::pair(one, one)}) {
    test::LayeredSetting setting = HashLmSetting(4, 2, 2, 1, 2);
    setting.target = target;
    setting.draft = draft;
    ExpectExact(setting, "extreme rows");
  }
}

// ---- dynamic width: the distribution of a layer, given its width and everything before it ----

double WorstGivenWidths(const test::LayeredSetting& setting, std::set<size_t>* widths) {
  // Turns the distribution of (layer 1, layer 2) into the conditional distribution of each layer.
  // history + width -> outputs -> mass
  std::map<std::vector<uint64_t>, test::ExactDistribution> given;
  for (const auto& [outcome, probability] : test::LayeredDistribution(setting)) {
    std::vector<uint64_t> history;
    for (size_t at = 0; at < outcome.size();) {
      const size_t width = outcome[at];
      widths->insert(width);
      history.push_back(width);
      const std::vector<uint64_t> outputs(outcome.begin() + at + 1,
                                          outcome.begin() + at + 1 + width);
      given[history][outputs] += probability;
      history.insert(history.end(), outputs.begin(), outputs.end());
      at += 1 + width;
    }
  }
  const test::BeamSamplingDistribution closed(setting);
  using Slot = test::BeamSamplingDistribution::Slot;
  double worst = 0;
  const std::function<void(const std::vector<Slot>&, int, const std::vector<uint64_t>&)> walk =
      [&](const std::vector<Slot>& slots, int length, const std::vector<uint64_t>& history) {
        for (size_t width = 1; width <= 8; ++width) {
          std::vector<uint64_t> key = history;
          key.push_back(width);
          const auto found = given.find(key);
          if (found == given.end()) continue;
          double total = 0;
          for (const auto& [outputs, mass] : found->second) total += mass;
          closed.NextLayer(
              slots, static_cast<int>(width), length,
              [&](const std::vector<Slot>& next, double expected) {
                std::vector<uint64_t> outputs;
                for (const Slot& slot : next) outputs.push_back(slot.hash);
                const auto it = found->second.find(outputs);
                worst = std::max(
                    worst,
                    std::abs((it == found->second.end() ? 0.0 : it->second / total) - expected));
                std::vector<uint64_t> longer = key;
                longer.insert(longer.end(), outputs.begin(), outputs.end());
                walk(next, length + 1, longer);
              });
        }
      };
  walk(closed.Start(), closed.StartLength(), {});
  return worst;
}

TEST(DsbdEnumeration, DynamicWidthIsBeamSamplingGivenTheWidths) {
  std::set<size_t> widths;
  for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
    for (double threshold : {0.3, 0.7, 0.95}) {
      test::LayeredSetting setting = HashLmSetting(2, 1, 2, 2, 2);
      setting.removed = rule;
      setting.params.width_threshold = threshold;
      setting.params.draft_width = 2;
      setting.params.stop_when_full = false;
      setting.params.max_tokens = 3;
      EXPECT_LT(WorstGivenWidths(setting, &widths), 1e-12) << threshold;
    }
  }
  EXPECT_GT(widths.size(), 1u);
}

// ---- negative controls over two layers ----

// Erratum E5: the first missing beam from P instead of the residual.
class DirectInsteadOfResidual : public test::ForwardedChoices {
 public:
  using test::ForwardedChoices::ForwardedChoices;
  Draw Choose(sampling::Domain domain, uint32_t slot,
              const LayerDistribution& distribution) override {
    if (domain != sampling::Domain::kResidual)
      return test::ForwardedChoices::Choose(domain, slot, distribution);
    // right only if nothing was rejected: P's own masses, up to a factor
    LayerDistribution whole = distribution;
    for (WeightedRow& row : whole.rows) {
      row.changed.clear();
      row.changed_log_mass.clear();
    }
    return choices_->Choose(domain, slot, whole);
  }
};

TEST(DsbdEnumeration, WrongVariantsDifferByMoreThanTheirMargin) {
  const test::LayeredSetting setting = HashLmSetting(2, 2, 3, 1, 2);
  const test::ExactDistribution closed = test::ClosedFixedWidthDistribution(setting);
  const test::ExactDistribution inverted = test::LayeredDistribution(
      setting, [](ChoiceSource* c) { return std::make_unique<test::InvertedRatio>(c); });
  EXPECT_GT(test::TotalVariation(inverted, closed), 0.1);
  const test::ExactDistribution direct = test::LayeredDistribution(
      setting, [](ChoiceSource* c) { return std::make_unique<DirectInsteadOfResidual>(c); });
  EXPECT_GT(test::TotalVariation(direct, closed), 0.01);
}

// Erratum E6: with set semantics the target differs if a path fills two of three slots.
TEST(DsbdEnumeration, SetSemanticsDiffers) {
  test::LayeredSetting setting = HashLmSetting(2, 3, 2, 1, 2);
  test::LayeredSetting merged = setting;
  merged.start = {{{0}, -1.0}, {{1}, -1.0}};
  setting.start = {{{0}, -1.0}, {{0}, -1.0}, {{1}, -1.0}};
  EXPECT_GT(test::TotalVariation(test::LayeredDistribution(setting),
                                 test::ClosedFixedWidthDistribution(merged)),
            0.02);
  setting.params.set_semantics = true;
  EXPECT_LT(test::TotalVariation(test::LayeredDistribution(setting),
                                 test::ClosedFixedWidthDistribution(merged)),
            1e-12);
}

}  // namespace
}  // namespace coppice::decoding
