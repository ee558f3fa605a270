// Exact distributions of beam sampling: docs/algorithms.md 3.3, 3.4. The two-layer distribution is
// that of whole DSBD decodes (production drafter and decoder, every choice enumerated).
#include <algorithm>
#include <map>

#include "lab/exact/layered_distribution.h"
#include "lab/golden/runners.h"
#include "sampling/deterministic_math.h"

namespace coppice::golden {
namespace {

test::ExactDistribution PairDistribution(const decoding::LayerDistribution& distribution, int vocab,
                                         bool with_replacement) {
  test::ExactDistribution pairs;
  test::VisitLayerOutcomes(distribution, 2, with_replacement,
                           [&](const std::vector<decoding::Entry>& drawn, double mass) {
                             std::vector<uint64_t> outcome;
                             for (const decoding::Entry& entry : drawn)
                               outcome.push_back(entry.beam * vocab + entry.token);
                             pairs[outcome] += mass;
                           });
  return pairs;
}

}  // namespace

void RunBeamSampling(const Json& inputs, const Json& expected, CaseCheck* check) {
  const std::vector<double> weights = Vec(inputs.at("beam_weight"));
  std::vector<sampling::Distribution> rows;
  for (const Json& row : inputs.at("rows")) rows.push_back(RowOf(Vec(row)));
  const int vocab = static_cast<int>(Vec(inputs.at("rows").at(0)).size());
  std::vector<decoding::WeightedBeam> listed, merged,
      once;                  // copies separate, merged with multiplicity, as a set
  std::map<int, int> place;  // beam -> index in merged
  for (int b = 0; b < static_cast<int>(weights.size()); ++b) {
    decoding::WeightedBeam beam{static_cast<uint64_t>(b), sampling::Log(weights[b]), 1, &rows[b]};
    listed.push_back(beam);
    const Json& copies = inputs.at("duplicate_of");
    if (const auto copy = copies.find(std::to_string(b)); copy != copies.end()) {
      ++merged[place.at(copy->get<int>())].multiplicity;
      continue;
    }
    place[b] = static_cast<int>(merged.size());
    merged.push_back(beam);
    once.push_back(beam);
  }
  const decoding::LayerDistribution distribution = decoding::MakeLayerDistribution(listed);
  check->NearAll("p_beam_flat", test::FlatMass(distribution, vocab), expected.at("p_beam_flat"));
  std::vector<double> parents;
  for (const decoding::WeightedRow& row : distribution.rows)
    parents.push_back(sampling::Exp(row.log_weight));
  check->NearAll("parent_mass", parents, expected.at("parent_mass"));
  if (expected.contains("distribution_iid_W2")) {
    check->SameDistribution("distribution_iid_W2", PairDistribution(distribution, vocab, true),
                            expected.at("distribution_iid_W2"));
    check->SameDistribution("distribution_wor_W2", PairDistribution(distribution, vocab, false),
                            expected.at("distribution_wor_W2"));
    return;
  }
  check->NearAll("p_beam_multiset_merged",
                 test::FlatMass(decoding::MakeLayerDistribution(merged), vocab),
                 expected.at("p_beam_multiset_merged"));
  std::vector<double> set(weights.size() * vocab, 0.0);
  const std::vector<double> distinct = test::FlatMass(decoding::MakeLayerDistribution(once), vocab);
  for (const auto& [beam, index] : place) {
    std::copy_n(distinct.begin() + index * vocab, vocab, set.begin() + beam * vocab);
  }
  check->NearAll("p_beam_set_semantics", set, expected.at("p_beam_set_semantics"));
}

namespace {

// Outcomes as two sorted lists of paths.
using Layers = std::pair<std::vector<std::vector<TokenId>>, std::vector<std::vector<TokenId>>>;

class TwoLayers {
 public:
  TwoLayers(const test::LayeredSetting& setting, int vocab) : width_(setting.params.beam_width) {
    std::vector<std::vector<TokenId>> level;
    for (const auto& slot : setting.start) level.push_back(slot.tokens);
    for (int layer = 0; layer < 2; ++layer) {
      std::vector<std::vector<TokenId>> next;
      for (const std::vector<TokenId>& path : level) {
        for (TokenId token = 0; token < vocab; ++token) {
          next.push_back(path);
          next.back().push_back(token);
          path_[sampling::HashPath(next.back())] = next.back();
        }
      }
      level = std::move(next);
    }
  }
  Layers Unordered(const std::vector<uint64_t>& outcome) const {  // width, hashes, width, hashes
    Layers layers;
    for (int w = 0; w < width_; ++w) {
      layers.first.push_back(path_.at(outcome[1 + w]));
      layers.second.push_back(path_.at(outcome[2 + width_ + w]));
    }
    std::sort(layers.first.begin(), layers.first.end());
    std::sort(layers.second.begin(), layers.second.end());
    return layers;
  }
  void Check(absl::string_view what, const test::ExactDistribution& distribution,
             const Json& expected, CaseCheck* check) const {
    std::map<Layers, double> got;
    for (const auto& [outcome, mass] : distribution) got[Unordered(outcome)] += mass;
    check->Equal(absl::StrCat(what, ": number of outcomes"), got.size(), expected.size());
    for (const Json& entry : expected) {
      const Layers out = {entry.at("layer1").get<std::vector<std::vector<TokenId>>>(),
                          entry.at("layer2").get<std::vector<std::vector<TokenId>>>()};
      check->Near(absl::StrCat(what, ": ", entry.at("layer1").dump(), entry.at("layer2").dump()),
                  got[out], entry.at("f64").get<double>());
    }
  }

 private:
  int width_;
  std::map<uint64_t, std::vector<TokenId>> path_;
};

}  // namespace

void RunBeamDistributionTwoLayers(const Json& inputs, const Json& expected, CaseCheck* check) {
  const test::HashLm lm = ReadHashLm(inputs);
  const test::HashLm other{lm.vocab_size, lm.salt + 1, lm.power, 0};
  test::LayeredSetting setting;
  setting.params.kind = sampling::DecodingKind::kBeamSampling;
  setting.params.beam_width = inputs.at("W").get<int>();
  for (const Json& beam : inputs.at("input_beams")) {
    setting.start.push_back(
        {Path(beam.at("path")), sampling::Log(Fraction(beam.at("weight").get<std::string>()))});
  }
  setting.params.max_tokens = static_cast<int>(setting.start[0].tokens.size()) + 2;
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  setting.draft = [other](uint64_t hash) { return other.TargetLogProbs(hash); };
  const TwoLayers layers(setting, lm.vocab_size);
  layers.Check("iid", test::LayeredDistribution(setting),
               expected.at("distribution_iid_multiset_unordered"), check);
  layers.Check("wor", test::ClosedFixedWidthDistribution(setting, /*with_replacement=*/false),
               expected.at("distribution_wor_unordered"), check);
}

}  // namespace coppice::golden
