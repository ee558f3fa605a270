#include "model/batch_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/model/model_harness.h"

namespace coppice {
namespace {

constexpr BatchLimits kLimits = {
    .max_rows = 8, .vocab_size = 100, .max_positions = 64, .blocks = kTestBlocks};

// Three prefix rows and two nodes below them.
ForwardBatch Good() {
  return BatchSketch(32).Prefix({1, 2, 3}, 0, 3, 1).Forest(3, {{-1, 4}, {0, 5}}).batch;
}

TEST(BatchCheck, AcceptsWellFormedBatches) {
  EXPECT_TRUE(CheckBatch(Good(), kLimits).ok()) << CheckBatch(Good(), kLimits);
  EXPECT_TRUE(CheckBatch(ForwardBatch(), kLimits).ok());
  ForwardBatch commits;
  commits.commits = {{16, 32}};
  EXPECT_TRUE(CheckBatch(commits, kLimits).ok());
}

struct BadBatch {
  const char* name;
  std::function<void(ForwardBatch*)> damage;
  const char* message;  // after "forward batch: "
};

class BadForwardBatch : public testing::TestWithParam<BadBatch> {};

TEST_P(BadForwardBatch, IsRefusedByName) {
  ForwardBatch batch = Good();
  GetParam().damage(&batch);
  EXPECT_EQ(std::string(CheckBatch(batch, kLimits).message()),
            std::string("forward batch: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadForwardBatch,
    testing::Values(
        BadBatch{"TooManyRows",
                 [](ForwardBatch* b) {
                   *b = BatchSketch(32).Prefix(std::vector<TokenId>(9, 1), 0, 9, 0).batch;
                 },
                 "9 rows, at most 8 (max_rows)"},
        BadBatch{"RaggedRows", [](ForwardBatch* b) { b->slot.pop_back(); },
                 "token, position, slot, row_table, prefix_len, chain_begin differ in rows"},
        BadBatch{"ChainBeginFalls", [](ForwardBatch* b) { b->chain_begin[1] = 2; },
                 "chain_begin does not partition chain"},
        BadBatch{"ChainBeginShort", [](ForwardBatch* b) { b->chain_begin.back() -= 1; },
                 "chain_begin does not partition chain"},
        BadBatch{"NoTables", [](ForwardBatch* b) { b->table_begin.clear(); },
                 "table_begin does not partition table"},
        BadBatch{"NegativeToken", [](ForwardBatch* b) { b->token[1] = -1; },
                 "row 1: token out of range"},
        BadBatch{"TokenBeyondVocabulary", [](ForwardBatch* b) { b->token[4] = 100; },
                 "row 4: token out of range"},
        BadBatch{"Position", [](ForwardBatch* b) { b->position[2] = 64; },
                 "row 2: position 64, the model has 64"},
        BadBatch{"Slot", [](ForwardBatch* b) { b->slot[0] = kTestBlocks * kBlockSize; },
                 "row 0: slot out of range"},
        BadBatch{"Context", [](ForwardBatch* b) { b->prefix_len[0] = 2; },
                 "row 0: context length differs from position + 1"},
        BadBatch{"RowTable", [](ForwardBatch* b) { b->row_table[3] = 1; },
                 "row 3: row_table out of range"},
        BadBatch{"PrefixBeyondTable",
                 [](ForwardBatch* b) {
                   b->prefix_len[2] = 40;
                   b->position[2] = 39;
                 },
                 "row 2: prefix_len exceeds its block table"},
        BadBatch{"ChainSlot", [](ForwardBatch* b) { b->chain[1] = -5; }, "chain slot out of range"},
        BadBatch{"TableBlock", [](ForwardBatch* b) { b->table[0] = kTestBlocks; },
                 "table block out of range"},
        BadBatch{"LogitsRow", [](ForwardBatch* b) { b->logits_rows = {5}; },
                 "logits_rows not ascending rows of the batch"},
        BadBatch{"LogitsOrder",
                 [](ForwardBatch* b) {
                   b->logits_rows = {2, 2};
                 },
                 "logits_rows not ascending rows of the batch"},
        BadBatch{"Commit",
                 [](ForwardBatch* b) {
                   b->commits = {{0, 100000}};
                 },
                 "commit slot out of range"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace coppice
