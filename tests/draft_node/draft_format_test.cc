// What a draft node's session knows of the output's format: the state after all stable tokens.
#include <gtest/gtest.h>

#include <vector>

#include "draft_node/draft_session.h"
#include "tests/testing/formatted_model.h"

namespace coppice::draft_node {
namespace {

constexpr TokenId kStop = 3;

class DraftFormatTest : public ::testing::Test {
 protected:
  // "a", "b" and "ab" are 0, 1 and 2.
  DraftFormatTest()
      : format_(grammar::Repeat(grammar::Literal("aab"), 1, grammar::Expression::kNoMost), 4,
                {kStop}) {
    params_.stop_ids = {kStop};
    params_.format = format_.Make();
  }
  std::vector<TokenId> Allowed(OutputFormat::State state) const {
    return params_.format->Allowed(state)->listed;
  }
  test::ToyFormat format_;
  decoding::DecodingParams params_;
  model::BlockManager blocks_{{.num_blocks = 8, .prefix_cache = false}};
};

TEST_F(DraftFormatTest, TheStateFollowsTheStableTokens) {
  DraftSession session(params_, {1, 1, 2}, &blocks_);  // the prompt is not of the format
  EXPECT_EQ(Allowed(session.stable_format_state()), (std::vector<TokenId>{0}));
  ASSERT_TRUE(session.ExtendStable(1, {0}).ok());
  EXPECT_EQ(Allowed(session.stable_format_state()), (std::vector<TokenId>{0, 2}));
  // Tokens that it has already are sent again; only the new one counts.
  ASSERT_TRUE(session.ExtendStable(2, {0, 2}).ok());
  EXPECT_EQ(Allowed(session.stable_format_state()), (std::vector<TokenId>{0, kStop}));
  ASSERT_TRUE(session.ExtendStable(2, {}).ok());
  EXPECT_EQ(Allowed(session.stable_format_state()), (std::vector<TokenId>{0, kStop}));
  ASSERT_TRUE(session.ExtendStable(4, {0, 0}).ok());
  EXPECT_EQ(Allowed(session.stable_format_state()), (std::vector<TokenId>{1}));
}

// The session of a node that takes over has all tokens at once.
TEST_F(DraftFormatTest, AnotherNodeHasTheSameState) {
  DraftSession one(params_, {1}, &blocks_), other(params_, {1}, &blocks_);
  const std::vector<TokenId> tokens = {0, 2, 0, 0, 1, 0};
  for (size_t i = 0; i < tokens.size(); ++i)
    ASSERT_TRUE(one.ExtendStable(static_cast<int>(i) + 1, {tokens[i]}).ok());
  ASSERT_TRUE(other.ExtendStable(static_cast<int>(tokens.size()), tokens).ok());
  EXPECT_EQ(one.stable_format_state(), other.stable_format_state());
}

TEST_F(DraftFormatTest, WithoutAFormatThereIsNoState) {
  params_.format = nullptr;
  DraftSession session(params_, {1}, &blocks_);
  ASSERT_TRUE(session.ExtendStable(1, {1}).ok());
  EXPECT_EQ(session.stable_format_state(), 0);
}

}  // namespace
}  // namespace coppice::draft_node
