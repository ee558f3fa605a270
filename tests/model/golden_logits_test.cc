// A real model compared with float64 logits of another program (tests/golden/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "nlohmann/json.hpp"
#include "sampling/deterministic_math.h"
#include "tests/model/model_harness.h"

namespace coppice::model {
namespace {

constexpr char kModel[] = "tests/models/stories260k";
constexpr char kGolden[] = "tests/golden/stories260k_logits.json";
constexpr double kTolerance = 1e-5;  // max |difference| / max |logit|, f32

class GoldenLogits : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(kGolden);
    ASSERT_TRUE(file) << kGolden << " cannot be read";
    file >> golden_;
    auto loaded = LoadForTest({.dir = kModel, .max_rows = 64});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    loaded_ = *std::move(loaded);
    ASSERT_GE(golden_["cases"].size(), 3u);
  }

  nlohmann::json golden_;
  LoadedModel loaded_;
};

TEST_F(GoldenLogits, LastLogitsWithinTolerance) {
  for (const auto& item : golden_["cases"]) {
    const std::vector<TokenId> ids = item["ids"];
    const int count = static_cast<int>(ids.size());
    const auto logits = loaded_.Run(PlanSketch(512).Prefix(ids, 0, count, 1).plan);
    ASSERT_TRUE(logits.ok()) << logits.status();
    const double error = RelativeError(*logits, item["last_logits"].get<std::vector<double>>());
    EXPECT_LT(error, kTolerance) << item["text"];
    RecordProperty("relative_error_" + std::to_string(count), std::to_string(error * 1e9) + "e-9");
  }
}

TEST_F(GoldenLogits, MeanNegativeLogLikelihoodOfTheText) {
  for (const auto& item : golden_["cases"]) {
    const std::vector<TokenId> ids = item["ids"];
    const int count = static_cast<int>(ids.size());
    const std::vector<float> logits =
        *loaded_.Run(PlanSketch(512).Prefix(ids, 0, count, count).plan);
    const size_t vocab = logits.size() / ids.size();
    double nll = 0;
    for (int t = 1; t < count; ++t) {
      const float* row = logits.data() + (t - 1) * vocab;
      double sum = 0;
      for (size_t i = 0; i < vocab; ++i) sum += sampling::Exp(row[i]);
      nll += (sampling::Log(sum) - row[ids[t]]) / (count - 1);
    }
    EXPECT_NEAR(nll, item["mean_nll"].get<double>(), 1e-4) << item["text"];
  }
}

TEST_F(GoldenLogits, GreedyContinuationsTokenForToken) {
  for (const auto& item : golden_["cases"]) {
    std::vector<TokenId> ids = item["ids"];
    const std::vector<TokenId> expected = item["greedy_next_40"];
    int begin = 0, compared = 0;
    for (const TokenId next : expected) {
      const int end = static_cast<int>(ids.size());
      std::vector<float> logits = *loaded_.Run(PlanSketch(512).Prefix(ids, begin, end, 1).plan);
      const auto best = std::max_element(logits.begin(), logits.end());
      const TokenId token = static_cast<TokenId>(best - logits.begin());
      const double top = *best;
      *best = -1e30f;
      const double margin = top - *std::max_element(logits.begin(), logits.end());
      if (margin < kTolerance * std::abs(top)) break;  // too close for this precision
      ASSERT_EQ(token, next) << item["text"] << " token " << compared;
      begin = end;
      ids.push_back(next);
      ++compared;
    }
    EXPECT_GE(compared, 30) << item["text"];
  }
}

}  // namespace
}  // namespace coppice::model
