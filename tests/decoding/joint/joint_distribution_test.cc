// p_beam of one layer against the flat sampling, which is written directly from the specification
// (lab/exact/flat_sampling.h), for target rows in both forms and for draft rows.
#include "decoding/joint/joint_distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "lab/exact/beam_distribution.h"
#include "lab/exact/flat_sampling.h"
#include "sampling/processed_row.h"
#include "sampling/rng.h"

namespace coppice::decoding {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

class GivenRows : public sampling::RowSource {
 public:
  explicit GivenRows(std::vector<std::vector<double>> rows) : rows_(std::move(rows)) {}
  absl::Span<const float> Logits(int) override { return {}; }
  absl::Span<const double> LogProbs(int row) override { return rows_[row]; }

 private:
  std::vector<std::vector<double>> rows_;
};

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-12) << i;
    ASSERT_EQ(got[i] == 0, want[i] == 0) << i;
  }
}

// Log-probabilities are rounded to steps, so ties inside a row are common.
test::FlatLayer RandomLayer(uint64_t seed, int beams, int vocab) {
  test::FlatLayer layer;
  const auto uniform = [&](int beam, int i) {
    return sampling::Uniform(seed, sampling::Domain::kDirect, beam, 0, static_cast<uint32_t>(i));
  };
  for (int b = 0; b < beams; ++b) {
    layer.log_score.push_back(-10 * uniform(b, vocab));
    layer.multiplicity.push_back(1 + static_cast<int>(3 * uniform(b, vocab + 1)));
    std::vector<double> row;
    double total = 0;
    for (int v = 0; v < vocab; ++v) {
      row.push_back(uniform(b, v) < 0.05 && v > 1 ? kNothing : -std::floor(12 * uniform(b, v)) / 2);
      total += std::exp(row.back());
    }
    for (double& value : row) value -= std::log(total);
    layer.log_probs.push_back(row);
  }
  return layer;
}

std::vector<sampling::SamplingParams> Samplings() {
  std::vector<sampling::SamplingParams> samplings;
  for (sampling::SamplingScope mode :
       {sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut}) {
    for (double temperature : {0.0, 0.6, 1.0, 2.0}) {
      for (int top_k : {0, 1, 5, 40}) {
        for (double top_p : {1.0, 0.85}) {
          for (double min_p : {0.0, 0.08}) {
            samplings.push_back({temperature, top_k, top_p, min_p, {}, mode});
            samplings.push_back(
                {temperature, top_k, top_p, min_p, {{1, 0.9}, {3, kNothing}}, mode});
          }
        }
      }
    }
  }
  return samplings;
}

TEST(JointDistributionTest, TargetDistributionIsTheFlatSampling) {
  uint64_t seed = 0;
  for (const auto& [width, vocab] : {std::pair(1, 5), std::pair(3, 9), std::pair(4, 700)}) {
    for (const sampling::SamplingParams& sampling : Samplings()) {
      SCOPED_TRACE(testing::Message()
                   << sampling::SamplingScopeName(sampling.mode) << " T " << sampling.temperature
                   << " k " << sampling.top_k << " p " << sampling.top_p << " min_p "
                   << sampling.min_p << " V " << vocab);
      const test::FlatLayer layer = RandomLayer(++seed, width, vocab);
      DecodingParams params;
      params.sampling = sampling;
      GivenRows source(layer.log_probs);
      std::vector<std::unique_ptr<sampling::ProcessedRow>> rows;
      std::vector<WeightedBeam> beams;
      for (int b = 0; b < width; ++b) {
        rows.push_back(std::make_unique<sampling::ProcessedRow>(params));
        rows.back()->Read(&source, b, 0);
        beams.push_back({static_cast<uint64_t>(b), layer.log_score[b], layer.multiplicity[b],
                         nullptr, rows.back().get()});
      }
      JointDistribution distribution(sampling);
      const std::vector<double> flat = test::FlatSampling(layer, sampling);
      ExpectNear(test::FlatMass(distribution.Make(beams), vocab), flat);
      for (size_t i = 0; i < flat.size(); ++i) {  // the raw log p is added to ls
        if (flat[i] == 0) continue;
        const int b = static_cast<int>(i) / vocab, v = static_cast<int>(i) % vocab;
        ASSERT_NEAR(rows[b]->Find(v).score_log_prob, layer.log_probs[b][v], 1e-12);
      }
    }
  }
}

TEST(JointDistributionTest, DraftDistributionIsTheFlatSamplingOfTheSentRows) {
  uint64_t seed = 1000;
  for (sampling::SamplingParams sampling : Samplings()) {
    sampling.logit_bias.clear();  // DraftRow has already added it
    const test::FlatLayer layer = RandomLayer(++seed, 3, 12);
    std::vector<sampling::Distribution> rows;
    std::vector<WeightedBeam> beams;
    for (int b = 0; b < 3; ++b)
      rows.push_back(sampling::ProcessRow(layer.log_probs[b], sampling::SamplingParams()));
    for (int b = 0; b < 3; ++b) {
      beams.push_back(
          {static_cast<uint64_t>(b), layer.log_score[b], layer.multiplicity[b], &rows[b], nullptr});
    }
    JointDistribution distribution(sampling);
    ExpectNear(test::FlatMass(distribution.Make(beams), 12), test::FlatSampling(layer, sampling));
  }
}

// Four copies of a path have weight 4^(1/T), not 4.
TEST(JointDistributionTest, CountsMultiplicityBeforeTheTemperature) {
  const sampling::Distribution certain{{0}, {0.0}};
  const std::vector<WeightedBeam> beams = {{1, -1, 4, &certain, nullptr},
                                           {2, -1, 1, &certain, nullptr}};
  for (sampling::SamplingScope mode :
       {sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut}) {
    sampling::SamplingParams sampling;
    sampling.mode = mode;
    sampling.temperature = 2;
    JointDistribution joint(sampling);
    const LayerDistribution distribution = joint.Make(beams);
    EXPECT_NEAR(std::exp(distribution.rows[0].log_weight - distribution.rows[1].log_weight), 2,
                1e-12);
  }
}

// A joint top-k may leave a beam without entries.
TEST(JointDistributionTest, ABeamCanLoseEveryEntry) {
  const sampling::Distribution certain{{0}, {0.0}};
  sampling::SamplingParams sampling;
  sampling.mode = sampling::SamplingScope::kJoint;
  sampling.top_k = 1;
  JointDistribution joint(sampling);
  const LayerDistribution distribution =
      joint.Make({{1, -9, 1, &certain, nullptr}, {2, -1, 1, &certain, nullptr}});
  EXPECT_EQ(distribution.rows[0].sparse, nullptr);
  EXPECT_EQ(distribution.rows[0].log_weight, kNothing);
  ASSERT_EQ(ListEntries(distribution).size(), 1u);
  EXPECT_EQ(ListEntries(distribution)[0].log_mass, 0);
}

// A target row without any finite logit is one-hot on token 0.
TEST(JointDistributionTest, ARowOfNothingKeepsItsBeam) {
  for (int top_k : {0, 3}) {
    for (sampling::SamplingScope mode :
         {sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut}) {
      DecodingParams params;
      params.sampling.mode = mode;
      params.sampling.top_k = top_k;
      GivenRows source({{kNothing, kNothing}, {std::log(0.5), std::log(0.5)}});
      sampling::ProcessedRow nothing(params), half(params);
      nothing.Read(&source, 0, 0);
      half.Read(&source, 1, 0);
      JointDistribution distribution(params.sampling);
      const std::vector<double> mass =
          test::FlatMass(distribution.Make({{1, std::log(0.25), 1, nullptr, &nothing},
                                            {2, std::log(0.75), 1, nullptr, &half}}),
                         2);
      ExpectNear(mass, {0.25, 0, 0.375, 0.375});
      EXPECT_EQ(nothing.Find(0).score_log_prob, 0);
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
