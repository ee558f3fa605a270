// The distribution of two layers of beam sampling in every sampling scope, with and without
// replacement, and in both semantics of equal paths (docs/algorithms.md 3.3, 3.4). The decoders are
// compared by G-test with products of p_beam, which is processed directly as specified.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "decoding/beam_decoder.h"
#include "decoding/method.h"
#include "decoding/seeded/joint_gumbel_coupling.h"
#include "decoding/sequence/layer_beams.h"
#include "lab/exact/beam_distribution.h"
#include "lab/exact/flat_sampling.h"
#include "lab/exact/hash_lm.h"
#include "tests/testing/g_test.h"

namespace coppice::decoding {
namespace {

const int kRuns = test::Samples(15000);
using Outcome = std::vector<uint64_t>;  // hashes of the outputs, sorted within each layer

struct Slot {
  uint64_t hash = sampling::kRootHash;
  double log_score = 0;
};

void AppendSorted(std::vector<uint64_t> layer, Outcome* outcome) {
  std::sort(layer.begin(), layer.end());
  outcome->insert(outcome->end(), layer.begin(), layer.end());
}

// Every outcome of the layers that follow `slots`.
class ClosedDistribution {
 public:
  ClosedDistribution(const DecodingParams& params, const test::HashLm& lm)
      : params_(params), lm_(lm) {}

  test::ExactDistribution TwoLayers() {
    Extend(std::vector<Slot>(1), {}, 1.0, /*layers=*/2);
    return distribution_;
  }

 private:
  void Extend(const std::vector<Slot>& slots, const Outcome& done, double probability, int layers) {
    if (layers == 0) {
      distribution_[done] += probability;
      return;
    }
    std::vector<Slot> beams;
    test::FlatLayer layer;
    for (const Slot& slot : slots) {
      const auto same = std::find_if(beams.begin(), beams.end(),
                                     [&](const Slot& beam) { return beam.hash == slot.hash; });
      if (same != beams.end()) {
        if (!params_.set_semantics) ++layer.multiplicity[same - beams.begin()];
        continue;
      }
      beams.push_back(slot);
      layer.log_score.push_back(slot.log_score);
      layer.multiplicity.push_back(1);
      layer.log_probs.push_back(lm_.TargetLogProbs(slot.hash));
    }
    std::vector<sampling::Distribution> rows;
    const LayerDistribution distribution = MakeDistribution(layer, &rows);
    test::VisitLayerOutcomes(
        distribution, params_.beam_width, params_.kind == sampling::DecodingKind::kBeamSampling,
        [&](const std::vector<Entry>& drawn, double mass) {
          std::vector<Slot> next;
          std::vector<uint64_t> hashes;
          for (const Entry& entry : drawn) {
            next.push_back({sampling::ExtendHash(beams[entry.beam].hash, entry.token),
                            beams[entry.beam].log_score + ScoreOf(layer, entry)});
            hashes.push_back(next.back().hash);
          }
          Outcome outcome = done;
          AppendSorted(hashes, &outcome);
          Extend(next, outcome, probability * mass, layers - 1);
        });
  }

  sampling::Distribution RowOf(const test::FlatLayer& layer, int beam) const {
    return sampling::ProcessRow(absl::Span<const double>(layer.log_probs[beam]), params_.sampling);
  }
  double ScoreOf(const test::FlatLayer& layer, Entry entry) const {
    if (params_.sampling.mode != sampling::SamplingScope::kRow)
      return layer.log_probs[entry.beam][entry.token];
    const sampling::Distribution row = RowOf(layer, entry.beam);
    return row.log_probs[FindToken(row, entry.token)];
  }
  // p_beam as one row per beam. The masses are those of the entries.
  LayerDistribution MakeDistribution(const test::FlatLayer& layer,
                                     std::vector<sampling::Distribution>* rows) const {
    std::vector<double> flat;
    if (sampling::IsJoint(params_.sampling.mode)) {
      flat = test::FlatSampling(layer, params_.sampling);
    } else {
      for (size_t b = 0; b < layer.log_score.size(); ++b) {
        const sampling::Distribution row = RowOf(layer, static_cast<int>(b));
        const double weight = std::exp(layer.log_score[b]) * layer.multiplicity[b];
        flat.resize(flat.size() + lm_.vocab_size);
        for (size_t i = 0; i < row.size(); ++i)
          flat[b * lm_.vocab_size + row.tokens[i]] = weight * std::exp(row.log_probs[i]);
      }
      double total = 0;
      for (double mass : flat) total += mass;
      for (double& mass : flat) mass /= total;
    }
    LayerDistribution distribution;
    rows->resize(layer.log_score.size());
    for (size_t b = 0; b < rows->size(); ++b) {
      for (TokenId v = 0; v < lm_.vocab_size; ++v) {
        const double mass = flat[b * lm_.vocab_size + v];
        if (mass == 0) continue;
        (*rows)[b].tokens.push_back(v);
        (*rows)[b].log_probs.push_back(std::log(mass));
      }
      WeightedRow row;
      row.sparse = &(*rows)[b];
      distribution.rows.push_back(row);
    }
    return distribution;
  }

  DecodingParams params_;
  test::HashLm lm_;
  test::ExactDistribution distribution_;
};

test::Sampler<Outcome> DecoderSampler(const DecodingParams& params, const test::HashLm& lm) {
  return [=](uint64_t seed, Outcome* outcome) {
    DecodingParams seeded = params;
    seeded.seed = seed;
    const auto decoder = MakeBeamDecoder(seeded).value();
    for (int layer = 0; layer < 2; ++layer) {
      const std::vector<uint64_t> roots = decoder->draft_state().root_hash;
      const DraftForest forest = DraftForest::Empty(static_cast<int>(roots.size()));
      test::HashLmRows rows(lm, roots, forest);
      decoder->Advance(forest, &rows);
      std::vector<uint64_t> hashes;
      for (const LayerOutput& output : decoder->last_layer())
        hashes.push_back(decoder->paths().hash(output.path));
      AppendSorted(hashes, outcome);
    }
    return true;
  };
}

DecodingParams Params(sampling::DecodingKind kind, int width,
                      const sampling::SamplingParams& sampling) {
  DecodingParams params;
  params.kind = kind;
  params.method = FindMethod("joint_gumbel_coupling");
  params.beam_width = width;
  params.max_tokens = 9;
  params.sampling = sampling;
  return params;
}

TEST(JointGumbelCouplingDistributionTest, TwoLayersFollowTheClosedDistributionInEveryMode) {
  const test::HashLm lm{3, 21, 3, 0};
  const test::HashLm wrong{3, 22, 3, 0};
  for (sampling::SamplingScope mode :
       {sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw,
        sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut}) {
    for (const bool cut : {false, true}) {
      sampling::SamplingParams sampling;
      sampling.mode = mode;
      sampling.temperature = 0.8;
      sampling.top_k = cut ? 2 + (mode == sampling::SamplingScope::kJoint ? 2 : 0) : 0;
      sampling.top_p = cut ? 0.95 : 1;
      for (sampling::DecodingKind kind :
           {sampling::DecodingKind::kBeamSampling,
            sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
        SCOPED_TRACE(testing::Message()
                     << sampling::SamplingScopeName(mode) << (cut ? " cut " : " ")
                     << sampling::DecodingKindName(kind));
        const int width = kind == sampling::DecodingKind::kBeamSampling ? 3 : 2;
        const DecodingParams params = Params(kind, width, sampling);
        const test::ExactDistribution distribution = ClosedDistribution(params, lm).TwoLayers();
        double total = 0;
        for (const auto& [outcome, mass] : distribution) total += mass;
        ASSERT_NEAR(total, 1, 1e-12);
        EXPECT_TRUE(test::FitsOnceOfTwice(distribution, DecoderSampler(params, lm), kRuns));
        if (cut) continue;
        EXPECT_FALSE(test::FitsOnceOfTwice(distribution, DecoderSampler(params, wrong), kRuns));
      }
    }
  }
}

// If equal paths count once, the target differs for W >= 3, with every method that serves both.
TEST(JointGumbelCouplingDistributionTest, SetSemanticsIsItsOwnDistribution) {
  const test::HashLm lm{2, 47, 2, 0};
  for (sampling::SamplingScope mode :
       {sampling::SamplingScope::kRow, sampling::SamplingScope::kJoint}) {
    sampling::SamplingParams sampling;
    sampling.mode = mode;
    DecodingParams multiset = Params(sampling::DecodingKind::kBeamSampling, 3, sampling);
    DecodingParams set = multiset;
    set.set_semantics = true;
    const test::ExactDistribution multiset_distribution =
        ClosedDistribution(multiset, lm).TwoLayers();
    const test::ExactDistribution set_distribution = ClosedDistribution(set, lm).TwoLayers();
    EXPECT_GT(test::TotalVariation(multiset_distribution, set_distribution), 0.05);
    for (const char* method : {"joint_gumbel_coupling", "gumbel_coupling"}) {
      SCOPED_TRACE(testing::Message() << sampling::SamplingScopeName(mode) << " " << method);
      multiset.method = set.method = FindMethod(method);
      if (!ResolveMethod(set).ok()) continue;  // Gumbel coupling has no joint modes
      EXPECT_TRUE(
          test::FitsOnceOfTwice(multiset_distribution, DecoderSampler(multiset, lm), kRuns));
      EXPECT_TRUE(test::FitsOnceOfTwice(set_distribution, DecoderSampler(set, lm), kRuns));
      EXPECT_FALSE(test::FitsOnceOfTwice(multiset_distribution, DecoderSampler(set, lm), kRuns));
      EXPECT_FALSE(test::FitsOnceOfTwice(set_distribution, DecoderSampler(multiset, lm), kRuns));
    }
  }
  DecodingParams pair =
      Params(sampling::DecodingKind::kBeamSampling, 2, sampling::SamplingParams());
  const test::ExactDistribution distribution = ClosedDistribution(pair, lm).TwoLayers();
  pair.set_semantics = true;
  EXPECT_LT(test::TotalVariation(distribution, ClosedDistribution(pair, lm).TwoLayers()), 1e-12);
}

// The noise of an entry belongs to its path. With one key for all beams of a layer, or for all
// layers, the distribution is different.
TEST(JointGumbelCouplingDistributionTest, NoiseOfAnotherKeyIsNoticed) {
  const test::HashLm lm{3, 21, 3, 0};
  sampling::SamplingParams sampling;
  sampling.mode = sampling::SamplingScope::kJoint;
  DecodingParams params = Params(sampling::DecodingKind::kBeamSampling, 2, sampling);
  const test::ExactDistribution distribution = ClosedDistribution(params, lm).TwoLayers();
  const auto sampler = [&](auto key) -> test::Sampler<Outcome> {
    return [=](uint64_t seed, Outcome* outcome) {
      DecodingParams seeded = params;
      seeded.seed = seed;
      PathTree paths;
      LayerBeams beams(seeded);
      for (int layer = 0; layer < 2; ++layer) {
        beams.BeginRound();
        const std::vector<uint64_t> roots = beams.State(paths, layer).root_hash;
        test::HashLmRows rows(lm, roots, DraftForest::Empty(static_cast<int>(roots.size())));
        LayerDistribution p = beams.Read(&rows, paths);
        for (WeightedRow& row : p.rows) row.hash = key(row.hash, layer);
        std::vector<Beam> slots;
        std::vector<uint64_t> hashes;
        for (const Entry& entry : DrawSlots(p, seeded, 2).entries) {
          const Beam& beam = beams.beams()[entry.beam];
          slots.push_back(
              {paths.Extend(beam.path, entry.token), beam.log_score + beams.ScoreLogProb(entry)});
          hashes.push_back(paths.hash(slots.back().path));
        }
        AppendSorted(hashes, outcome);
        beams.Set(slots);
      }
      return true;
    };
  };
  EXPECT_TRUE(
      test::FitsOnceOfTwice(distribution, sampler([](uint64_t hash, int) { return hash; }), kRuns));
  EXPECT_FALSE(test::FitsOnceOfTwice(
      distribution, sampler([](uint64_t, int layer) { return static_cast<uint64_t>(layer); }),
      kRuns));
  EXPECT_FALSE(test::FitsOnceOfTwice(distribution,
                                     sampler([](uint64_t, int) { return uint64_t{7}; }), kRuns));
}

}  // namespace
}  // namespace coppice::decoding
