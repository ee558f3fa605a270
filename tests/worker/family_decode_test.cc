// Whole rounds with a model and a draft of every family: greedy decoding gives the tokens of the
// double-precision reference, and drafts change nothing where they must not, beams included.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "decoding/method.h"
#include "tests/model/reference_model.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/method_case.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_quantised.h"

namespace coppice::worker {
namespace {

constexpr int kVocab = 96;
constexpr TokenId kEos = 2;
constexpr int kTokens = 16;

class FamilyDecodeTest : public testing::TestWithParam<std::string> {
 protected:
  // The draft is the begin of the target, so that some of its tokens are accepted.
  FamilyDecodeTest() : model_(test::MakeTinyFamily(GetParam(), {.layers = 4, .vocab = kVocab})) {
    test::WriteTinyLlama(model_, target_.path());
    test::WriteTinyLlama(test::MakeTinyFamily(GetParam(), {.layers = 3, .vocab = kVocab}),
                         draft_.path());
  }
  // Longer than every window of the tiny families.
  static std::vector<TokenId> Prompt(int first) {
    std::vector<TokenId> prompt = {static_cast<TokenId>(first)};
    while (prompt.size() < 24) prompt.push_back((prompt.back() * 37 + 11) % kVocab);
    return prompt;
  }

  const test::TinyLlama model_;
  const test::TempDir target_, draft_;
};

TEST_P(FamilyDecodeTest, GreedyTokensAreThoseOfTheReference) {
  test::CheckedReplica replica(target_.path(), draft_.path());
  decoding::DecodingParams params;
  params.method = decoding::FindMethod("gumbel_coupling");
  ASSERT_NE(params.method, nullptr);
  params.max_tokens = kTokens;
  params.sampling.temperature = 0;
  for (const int first : {5, 70}) {
    const std::vector<TokenId> want = model::ReferenceGreedy(model_, Prompt(first), kTokens);
    const auto plain = replica.Decode(Prompt(first), params, 0, 0);
    const auto drafted = replica.Decode(Prompt(first), params, 1, 3);
    EXPECT_EQ(plain.hypotheses[0].tokens, want) << "first token " << first;
    EXPECT_EQ(drafted.hypotheses[0].tokens, want) << "first token " << first;
    EXPECT_LE(drafted.passes, plain.passes);
  }
}

TEST_P(FamilyDecodeTest, DraftsChangeNothing) {
  test::CheckedReplica replica(target_.path(), draft_.path());
  const auto reproducible = [](const decoding::MethodRow& row) {
    return row.reproducible && row.form != decoding::DraftForm::kNone;
  };
  int passes = 0, passes_plain = 0;
  for (const test::MethodCase& method : test::MethodCases(reproducible)) {
    const decoding::DecodingParams params = method.Params(kTokens, kEos, /*seed=*/3);
    const auto plain = replica.Decode(Prompt(9), params, 0, 0);
    const auto drafted = replica.Decode(Prompt(9), params, method.DraftWidth(6), 3);
    ASSERT_EQ(drafted.hypotheses.size(), plain.hypotheses.size()) << method.Name();
    for (size_t i = 0; i < plain.hypotheses.size(); ++i) {
      EXPECT_EQ(drafted.hypotheses[i].tokens, plain.hypotheses[i].tokens) << method.Name();
      EXPECT_EQ(drafted.hypotheses[i].joint_log_probability,
                plain.hypotheses[i].joint_log_probability)
          << method.Name();
    }
    passes += drafted.passes;
    passes_plain += plain.passes;
  }
  EXPECT_LT(passes, passes_plain);
}

INSTANTIATE_TEST_SUITE_P(Tiny, FamilyDecodeTest, testing::ValuesIn(test::TinyFamilies()),
                         [](const auto& info) { return info.param; });

// A target that is kept in blocks, with the draft that it is quantised from.
TEST(QuantisedDecode, DraftsChangeNothing) {
  const test::TempDir target, draft;
  const test::TinyLlama model = test::MakeTinyLlama({.hidden = 64, .intermediate = 96});
  test::WriteTinyLlama(test::Quantise(model, {.layout = "gptq", .symmetric = false}).folder,
                       target.path());
  test::WriteTinyLlama(model, draft.path());
  test::CheckedReplica replica(target.path(), draft.path());
  decoding::DecodingParams params;
  params.method = decoding::FindMethod("gumbel_coupling");
  ASSERT_NE(params.method, nullptr);
  params.max_tokens = kTokens;
  params.sampling.temperature = 0;
  for (const TokenId first : {5, 70}) {
    const auto plain = replica.Decode({first, 11, 60, 4}, params, 0, 0);
    const auto drafted = replica.Decode({first, 11, 60, 4}, params, 1, 3);
    EXPECT_EQ(drafted.hypotheses[0].tokens, plain.hypotheses[0].tokens) << "first token " << first;
    EXPECT_LT(drafted.passes, plain.passes);
  }
}

}  // namespace
}  // namespace coppice::worker
