#include "decoding/parameter_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "decoding/beam_decoder.h"
#include "decoding/method.h"

namespace coppice::decoding {
namespace {

using Code = Violation::Code;
using ::testing::HasSubstr;

TEST(ParameterRules, EachNamesItsFieldCodeAndReason) {
  using sampling::DecodingKind;
  struct Case {
    const char* object;
    const char* field;
    Code code;
    const char* reason;
    std::function<void(DecodingParams*)> breaks;
  };
  const auto beams = [](DecodingKind kind, DecodingParams* p) {
    p->kind = kind;
    p->beam_width = 4;
  };
  const std::vector<Case> cases = {
      {"", "beam_width", Code::kCombination, "one path", [](auto* p) { p->beam_width = 2; }},
      {"", "n", Code::kCombination, "which is 1", [](auto* p) { p->num_hypotheses = 2; }},
      {"", "early_stopping", Code::kNoEffect, "multinomial",
       [](auto* p) { p->stop_when_full = false; }},
      {"", "refill", Code::kNoEffect, "multinomial", [](auto* p) { p->refill = false; }},
      {"", "refill", Code::kNoEffect, "only beam_sampling",
       [&](auto* p) {
         beams(DecodingKind::kBeamSearch, p);
         p->refill = false;
       }},
      {"", "top_k", Code::kCombination, "beam_search",
       [&](auto* p) {
         beams(DecodingKind::kBeamSearch, p);
         p->sampling.top_k = 4;
       }},
      {"", "sampling_scope", Code::kNoEffect, "beam_search",
       [&](auto* p) {
         beams(DecodingKind::kBeamSearch, p);
         p->sampling.mode = sampling::SamplingScope::kRowRaw;
       }},
      {"", "sampling_scope", Code::kCombination, "joint is not served",
       [](auto* p) { p->sampling.mode = sampling::SamplingScope::kJoint; }},
      {"", "presence_penalty", Code::kCombination, "rowcut",
       [&](auto* p) {
         beams(DecodingKind::kBeamSampling, p);
         p->sampling.mode = sampling::SamplingScope::kRowCut;
         p->sampling.presence_penalty = 1;
       }},
      {"", "temperature", Code::kCombination, "beam_sampling_without_replacement",
       [&](auto* p) {
         beams(DecodingKind::kBeamSamplingWithoutReplacement, p);
         p->sampling.temperature = 0;
       }},
      {"", "beam_duplicates", Code::kCombination, "only beams of beam_sampling",
       [](auto* p) { p->set_semantics = true; }},
      {"", "format_spec", Code::kCombination, "min_tokens",
       [](auto* p) {
         p->format_spec = {FormatSpec::Kind::kRegex, "a*"};
         p->min_tokens = 1;
       }},
      {"", "logit_bias", Code::kInvalidValue, "token 3",
       [](auto* p) {
         p->sampling.logit_bias = {{3, std::nan("")}};
       }},
      {"speculative", "draft_tree", Code::kNoEffect, "gumbel_coupling",
       [](auto* p) { p->draft_tree = "2-1"; }},
      {"speculative", "joint_tokens", Code::kNoEffect, "gumbel_coupling",
       [](auto* p) { p->joint_tokens = 2; }},
      {"speculative", "min_width", Code::kNoEffect, "gumbel_coupling",
       [&](auto* p) {
         beams(DecodingKind::kBeamSampling, p);
         p->min_width = 2;
       }},
      {"speculative", "min_width", Code::kInvalidValue, "between 1 and beam_width",
       [&](auto* p) {
         beams(DecodingKind::kBeamSampling, p);
         p->method = FindMethod("dsbd");
         p->width_threshold = 0.5;
         p->min_width = 5;
       }},
      {"speculative", "draft_width", Code::kCombination, "more than the 2 children",
       [](auto* p) {
         p->method = FindMethod("spechub");
         p->draft_width = 3;
       }},
      {"speculative", "draft_width", Code::kNoEffect, "draft_tree",
       [](auto* p) {
         p->method = FindMethod("spechub");
         p->draft_tree = "2-1";
         p->draft_width = 2;
       }},
      {"speculative", "draft_tree", Code::kInvalidValue, "'2-x': ",
       [](auto* p) {
         p->method = FindMethod("spechub");
         p->draft_tree = "2-x";
       }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.field);
    DecodingParams params;
    c.breaks(&params);
    const std::vector<Violation> violations = Check(params);
    ASSERT_FALSE(violations.empty()) << c.reason;
    const Violation& first = violations[0];
    EXPECT_EQ(first.object, c.object);
    EXPECT_EQ(first.field, c.field);
    EXPECT_EQ(first.code, c.code) << first.reason;
    EXPECT_THAT(first.reason, HasSubstr(c.reason));
    // What has no effect is decoded.
    const std::string error(CheckRules(params).message());
    if (c.code == Code::kNoEffect) {
      EXPECT_TRUE(MakeBeamDecoder(params).ok()) << error;
    } else {
      EXPECT_EQ(error, absl::StrCat(c.field, " ", first.reason));
      EXPECT_FALSE(MakeBeamDecoder(params).ok());
    }
  }
}

TEST(ParameterRules, EveryMethodServesItsDecodingsWithDefaults) {
  for (const MethodRow& row : Methods()) {
    for (const sampling::DecodingKind kind : row.serves) {
      DecodingParams params;
      params.kind = kind;
      params.method = &row;
      if (kind == sampling::DecodingKind::kMultinomial) params.sampling.temperature = 0;
      EXPECT_THAT(Check(params), ::testing::IsEmpty()) << row.name;
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
