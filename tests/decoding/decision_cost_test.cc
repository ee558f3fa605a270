// The cost of deciding a layer, and the requests that are refused because it is too high.
#include "decoding/decision_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "decoding/method.h"

namespace coppice::decoding {
namespace {

constexpr int kVocab = 131072;

// If the name is unknown, takes the first method that serves the kind.
DecodingParams Wide(const std::string& method, sampling::DecodingKind kind, int beam_width) {
  DecodingParams params;
  params.kind = kind;
  params.method = FindMethod(method);
  params.beam_width = beam_width;
  return params;
}

TEST(DecisionCost, EveryMethodOverTheJointLayerHasALimitAndNoOther) {
  for (const MethodRow& row : Methods()) {
    for (sampling::DecodingKind kind : row.serves) {
      if (kind == sampling::DecodingKind::kMultinomial) continue;
      SCOPED_TRACE(testing::Message() << row.name << " " << sampling::DecodingKindName(kind));
      const std::string method(row.name);
      EXPECT_TRUE(CheckDecisionCost(Wide(method, kind, 64), kVocab).ok());
      const bool one_slot = method == "joint_gumbel_coupling" &&
                            kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement;
      const bool limited = row.joint_sampling && !one_slot;
      EXPECT_EQ(CheckDecisionCost(Wide(method, kind, 65), kVocab).ok(), !limited);
      EXPECT_EQ(CheckDecisionCost(Wide(method, kind, 1024), kVocab).ok(), !limited);
    }
  }
}

TEST(DecisionCost, PlainDecodingCostsWhatTheMethodOfAutoDoes) {
  for (const bool plain : {true, false}) {
    DecodingParams params = Wide("", sampling::DecodingKind::kBeamSampling, 65);
    params.plain = plain;
    EXPECT_EQ(LayerNoise(params, kVocab), 0);
    params.sampling.mode = sampling::SamplingScope::kJoint;
    EXPECT_EQ(LayerNoise(params, kVocab), int64_t{65} * 65 * kVocab);
    params.sampling.mode = sampling::SamplingScope::kRowCut;
    EXPECT_EQ(LayerNoise(params, kVocab), int64_t{65} * 65 * kVocab);
  }
}

// top_k limits a row, or the layer in mode JOINT. top_p and min_p may keep every entry.
TEST(DecisionCost, TopKAloneBoundsTheEntries) {
  DecodingParams params = Wide("dsbd", sampling::DecodingKind::kBeamSampling, 1024);
  params.sampling.top_p = 0.5;
  params.sampling.min_p = 0.5;
  EXPECT_FALSE(CheckDecisionCost(params, kVocab).ok());
  params.sampling.top_k = 50;
  EXPECT_EQ(LayerNoise(params, kVocab), int64_t{1024} * 1024 * 50);
  EXPECT_TRUE(CheckDecisionCost(params, kVocab).ok());
  params.sampling.top_k = 513;
  EXPECT_FALSE(CheckDecisionCost(params, kVocab).ok());
  params.sampling.mode = sampling::SamplingScope::kJoint;
  EXPECT_EQ(LayerNoise(params, kVocab), int64_t{1024} * 513);
}

TEST(DecisionCost, ADynamicWidthCountsWhatItMayGrowTo) {
  DecodingParams params = Wide("dsbd", sampling::DecodingKind::kBeamSampling, 64);
  params.width_threshold = 0.9;  // up to the 2 W drafts of a layer
  EXPECT_EQ(LayerNoise(params, kVocab), int64_t{128} * 128 * kVocab);
}

TEST(DecisionCost, TheErrorNamesTheFieldTheLimitAndWhatHelps) {
  DecodingParams params = Wide("dsbd", sampling::DecodingKind::kBeamSampling, 65);
  EXPECT_THAT(std::string(CheckDecisionCost(params, kVocab).message()),
              testing::AllOf(testing::StartsWith("beam_width: "), testing::HasSubstr("dsbd"),
                             testing::HasSubstr("536870912"), testing::HasSubstr("top_k"),
                             testing::HasSubstr("gumbel_coupling")));
  params = Wide("dsbd_wor", sampling::DecodingKind::kBeamSamplingWithoutReplacement, 65);
  params.sampling.mode = sampling::SamplingScope::kJoint;
  EXPECT_THAT(std::string(CheckDecisionCost(params, kVocab).message()),
              testing::HasSubstr("sampling_scope row with method gumbel_top_k"));
}

}  // namespace
}  // namespace coppice::decoding
