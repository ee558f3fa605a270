#include "model/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace coppice::model {
namespace {

ModelConfig Config(int heads, int kv_heads) {
  ModelConfig config;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.intermediate_size = 100;
  config.vocab_size = 101;
  return config;
}

// Every head, column and token is on exactly one rank, no rank is empty, and the query heads of a
// rank read its KV heads.
TEST(ShardPlan, CoversEverythingOnce) {
  for (const int kv_heads : {1, 2, 3, 4, 8}) {
    for (const int group : {1, 2, 3, 7}) {
      for (int ranks = 1; ranks <= std::min(kv_heads * group, 16); ++ranks) {
        int q = 0, columns = 0, tokens = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto plan = MakeShardPlan(Config(kv_heads * group, kv_heads), rank, ranks);
          ASSERT_TRUE(plan.ok()) << plan.status();
          EXPECT_EQ(plan->q_heads.begin, q);
          EXPECT_EQ(plan->intermediate.begin, columns);
          EXPECT_EQ(plan->vocab.begin, tokens);
          EXPECT_GE(plan->q_heads.size(), 1);
          EXPECT_GE(plan->intermediate.size(), 1);
          EXPECT_GE(plan->vocab.size(), 1);
          EXPECT_LE(plan->vocab.size(), plan->largest_vocab);
          EXPECT_EQ(plan->q_heads.size() % plan->kv_heads.size(), 0);
          EXPECT_EQ(plan->q_heads.begin / group, plan->kv_heads.begin);
          EXPECT_EQ((plan->q_heads.end - 1) / group + 1, plan->kv_heads.end);
          q = plan->q_heads.end;
          columns = plan->intermediate.end;
          tokens = plan->vocab.end;
        }
        EXPECT_EQ(q, kv_heads * group);
        EXPECT_EQ(columns, 100);
        EXPECT_EQ(tokens, 101);
      }
    }
  }
}

TEST(ShardPlan, BalancedPiecesDifferByOneAtMost) {
  const std::vector<int> expected = {3, 3, 2, 2};
  for (int part = 0; part < 4; ++part) EXPECT_EQ(BalancedPiece(10, part, 4).size(), expected[part]);
}

TEST(ShardPlan, CutsColumnsAtTheBordersOfBlocks) {
  const auto sizes = [](int total, int parts) {
    std::vector<int> pieces;
    int begin = 0;
    for (int part = 0; part < parts; ++part) {
      const Range piece = ColumnPiece(total, part, parts);
      EXPECT_EQ(piece.begin, begin);
      begin = piece.end;
      pieces.push_back(piece.size());
    }
    EXPECT_EQ(begin, total);
    return pieces;
  };
  using Sizes = std::vector<int>;
  EXPECT_EQ(sizes(11008, 4), (Sizes{2816, 2816, 2816, 2560}));  // 43 blocks of 256
  EXPECT_EQ(sizes(14336, 8), Sizes(8, 1792));
  EXPECT_EQ(sizes(1536, 4), Sizes(4, 384));           // two blocks of 256 would be a third too many
  EXPECT_EQ(sizes(1000, 3), (Sizes{334, 333, 333}));  // no whole blocks
  EXPECT_EQ(sizes(64, 3), (Sizes{22, 21, 21}));       // fewer blocks than ranks
  EXPECT_EQ(sizes(352, 3), (Sizes{128, 128, 96}));
  EXPECT_EQ(sizes(768, 1), Sizes{768});
}

TEST(ShardPlan, RefusesMoreRanksThanPieces) {
  ModelConfig config = Config(8, 2);
  EXPECT_FALSE(MakeShardPlan(config, 0, 9).ok());
  config.intermediate_size = 3;
  EXPECT_THAT(MakeShardPlan(config, 0, 4).status().message(),
              testing::HasSubstr("at most 3 ranks"));
}

TEST(ShardPlan, CutsTheVocabularyAtTheBordersOfChunks) {
  for (const int ranks : {1, 2, 3, 5, 16}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto plan = MakeShardPlan(Config(16, 16), rank, ranks);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->vocab.begin, 16 * rank / ranks * 101 / 16);
      EXPECT_EQ(plan->vocab.end, 16 * (rank + 1) / ranks * 101 / 16);
    }
  }
}

TEST(ShardPlan, RefusesMoreRanksThanChunksOfTheVocabulary) {
  const absl::Status many = MakeShardPlan(Config(20, 20), 0, 17).status();
  EXPECT_EQ(many.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(many.message(), testing::HasSubstr("over 17 ranks"));
  EXPECT_THAT(many.message(), testing::HasSubstr("expected at most 16 ranks"));
  ModelConfig config = Config(12, 12);
  config.vocab_size = 11;
  for (int rank = 0; rank < 11; ++rank) {  // every rank gives the same error
    const absl::Status empty = MakeShardPlan(config, rank, 11).status();
    EXPECT_EQ(empty.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(empty.message(), testing::HasSubstr("of 11 tokens none is left for rank 0"));
  }
}

}  // namespace
}  // namespace coppice::model
