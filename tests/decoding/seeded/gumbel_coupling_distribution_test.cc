// The distribution of two layers of Gumbel coupling and Gumbel top-k, by G-test against exact
// distributions (tests/decoding/README.md 3).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "decoding/beam_decoder.h"
#include "lab/exact/hash_lm.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/testing/g_test.h"

namespace coppice::decoding {
namespace {

using Path = std::vector<TokenId>;
using Layer = std::multiset<Path>;
using Outcome = std::pair<Layer, Layer>;
using OutcomeDistribution = std::map<Outcome, double>;
using TwoLayerSampler = test::Sampler<Outcome>;

const int kRuns = test::Samples(30000);

// HashLM after the first token, which the root draws with given weights.
class StartRows : public sampling::RowSource {
 public:
  StartRows(const test::HashLm& lm, const BeamDecoder& decoder, absl::Span<const double> start)
      : lm_(lm), decoder_(decoder), start_(start.begin(), start.end()) {}
  absl::Span<const float> Logits(int) override { return {}; }
  absl::Span<const double> LogProbs(int row) override {
    const PathId root = decoder_.roots()[row];
    row_ = root == kRootPath && !start_.empty() ? start_
                                                : lm_.TargetLogProbs(decoder_.paths().hash(root));
    return row_;
  }

 private:
  test::HashLm lm_;
  const BeamDecoder& decoder_;
  std::vector<double> start_, row_;
};

Layer PathsOf(const BeamDecoder& decoder) {
  Layer layer;
  for (const LayerOutput& output : decoder.last_layer())
    layer.insert(decoder.paths().Tokens(output.path));
  return layer;
}

// Two layers of the decoder. With start weights, a layer before them draws the input beams, and
// only runs that draw each of them once are counted.
TwoLayerSampler DecoderSampler(sampling::DecodingKind kind, int width, const test::HashLm& lm,
                               const std::vector<double>& start) {
  return [=](uint64_t seed, Outcome* outcome) {
    DecodingParams params;
    params.kind = kind;
    params.beam_width = width;
    params.max_tokens = 9;
    params.seed = seed;
    auto decoder = MakeBeamDecoder(params).value();
    StartRows rows(lm, *decoder, start);
    const auto advance = [&] {
      decoder->Advance(DraftForest::Empty(static_cast<int>(decoder->roots().size())), &rows);
      return PathsOf(*decoder);
    };
    if (!start.empty()) {
      const Layer input = advance();
      if (std::set<Path>(input.begin(), input.end()).size() < input.size()) return false;
    }
    outcome->first = advance();
    outcome->second = advance();
    return true;
  };
}

struct Slot {
  Path path;
  double weight;
};

// Every outcome of `width` independent draws from p_beam with multiset semantics, as in 3.3.
void VisitLayers(const test::HashLm& lm, const std::vector<Slot>& slots, int width,
                 double probability, int layers, std::vector<Layer>* done,
                 OutcomeDistribution* distribution) {
  if (layers == 0) {
    (*distribution)[{(*done)[0], (*done)[1]}] += probability;
    return;
  }
  std::vector<Slot> entries;
  double total = 0;
  for (const Slot& slot : slots) {  // a path held by m slots is listed m times
    const std::vector<double> row = lm.TargetLogProbs(sampling::HashPath(slot.path));
    for (int v = 0; v < lm.vocab_size; ++v) {
      Slot child = slot;
      child.path.push_back(v);
      child.weight *= std::exp(row[v]);
      total += child.weight;
      entries.push_back(child);
    }
  }
  std::vector<Slot> drawn;
  const std::function<void(double)> draw = [&](double mass) {
    if (static_cast<int>(drawn.size()) == width) {
      Layer layer;
      for (const Slot& slot : drawn) layer.insert(slot.path);
      done->push_back(layer);
      const std::vector<Slot> next = drawn;
      VisitLayers(lm, next, width, mass, layers - 1, done, distribution);
      done->pop_back();
      return;
    }
    for (const Slot& entry : entries) {
      drawn.push_back(entry);
      draw(mass * entry.weight / total);
      drawn.pop_back();
    }
  };
  draw(probability);
}

TEST(GumbelCouplingDistributionTest,
     ThreeSlotsFollowTheMultisetDistributionAndNotTheSetDistribution) {
  const test::HashLm lm{2, 47, 2, 0};
  OutcomeDistribution distribution;
  std::vector<Layer> done;
  VisitLayers(lm, {{{}, 1.0}}, 3, 1.0, 2, &done, &distribution);
  double total = 0;
  for (const auto& [outcome, probability] : distribution) total += probability;
  ASSERT_NEAR(total, 1, 1e-12);
  EXPECT_TRUE(test::FitsOnceOfTwice(
      distribution, DecoderSampler(sampling::DecodingKind::kBeamSampling, 3, lm, {}), kRuns));

  const TwoLayerSampler set_semantics = [&](uint64_t seed, Outcome* outcome) {
    DecodingParams params;
    params.kind = sampling::DecodingKind::kBeamSampling;
    params.beam_width = 3;
    params.seed = seed;
    for (int layers : {1, 2}) {
      params.max_tokens = layers;
      params.set_semantics = true;
      ReferenceDecoder reference(params, lm);
      Layer& layer = layers == 1 ? outcome->first : outcome->second;
      for (const ReferenceBeam& slot : reference.RunLayers(layers)) layer.insert(slot.path);
    }
    return true;
  };
  EXPECT_FALSE(test::FitsOnceOfTwice(distribution, set_semantics, kRuns));
}

TEST(GumbelCouplingDistributionTest, GoldenDistributionsOfTwoLayers) {
  std::ifstream file("tests/golden/beam_distribution_two_layers.json");
  ASSERT_TRUE(file) << "tests/golden/beam_distribution_two_layers.json cannot be read";
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_FALSE(golden["cases"].empty());
  for (const auto& test_case : golden["cases"]) {
    SCOPED_TRACE(test_case["name"].get<std::string>());
    const auto& inputs = test_case["inputs"];
    const test::HashLm lm{inputs["V"], inputs["salt"], inputs["power"], 0};
    std::vector<double> start;
    if (!inputs["input_beams"][0]["path"].empty()) {
      start.assign(lm.vocab_size, -std::numeric_limits<double>::infinity());
      for (const auto& beam : inputs["input_beams"]) {
        const std::string weight = beam["weight"];
        const double value = std::stod(weight) / std::stod(weight.substr(weight.find('/') + 1));
        start[beam["path"][0].get<int>()] = std::log(value);
      }
    }
    for (const bool with_replacement : {true, false}) {
      OutcomeDistribution distribution;
      const char* key =
          with_replacement ? "distribution_iid_multiset_unordered" : "distribution_wor_unordered";
      for (const auto& cell : test_case["expected"][key]) {
        const auto paths = [](const nlohmann::json& list) {
          Layer layer;
          for (const auto& path : list) layer.insert(path.get<Path>());
          return layer;
        };
        distribution[{paths(cell["layer1"]), paths(cell["layer2"])}] += cell["f64"].get<double>();
      }
      const auto kind = with_replacement ? sampling::DecodingKind::kBeamSampling
                                         : sampling::DecodingKind::kBeamSamplingWithoutReplacement;
      EXPECT_TRUE(
          test::FitsOnceOfTwice(distribution, DecoderSampler(kind, inputs["W"], lm, start), kRuns))
          << key;
      // A slightly different model, with another salt, must be detected.
      test::HashLm wrong = lm;
      wrong.salt += 1;
      EXPECT_FALSE(test::FitsOnceOfTwice(distribution,
                                         DecoderSampler(kind, inputs["W"], wrong, start), kRuns))
          << key;
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
