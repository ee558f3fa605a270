// The leader's loop with a block drafter in the worker's process: answers are those without it,
// whatever happens to sequences.
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/tiny_dflash.h"
#include "tests/worker/head_fixture.h"

namespace coppice::worker {
namespace {

// The drafters differ in where a row's token is, and in the bias.
class BlockEngineTest : public HeadTest, public ::testing::WithParamInterface<bool> {
 protected:
  BlockEngineTest() {
    test::TinyDFlashOptions options;
    options.dspark = GetParam();
    options.markov_rank = GetParam() ? 8 : 0;
    test::WriteTinyLlama(test::MakeTinyDFlash(Target(), options), head_.path());
  }
};

TEST_P(BlockEngineTest, AnswersAreThoseWithoutIt) {
  const auto plain = Requests(120, /*drafts=*/false), drafted = Requests(120, /*drafts=*/true);
  const auto runner = LoadTarget(2000, /*keeps=*/true);
  const auto without = DecodeWith(LoadTarget(2000, /*keeps=*/false).get(), plain, nullptr);
  EXPECT_EQ(drafted_, 0u);
  const auto drafter = LoadHead();
  ExpectSame(DecodeWith(runner.get(), drafted, drafter->Serve(ManySessions())), without);
  EXPECT_GT(drafted_, 2000u);
  ExpectServed();
}

TEST_P(BlockEngineTest, AlsoInAPoolThatIsFarTooSmall) {
  const auto plain = Requests(120, /*drafts=*/false), drafted = Requests(120, /*drafts=*/true);
  const auto large = LoadTarget(2000, /*keeps=*/true);
  const auto without = DecodeWith(large.get(), plain, nullptr);
  const auto drafter = LoadHead();
  const auto small = LoadTarget(LargestBound(large.get(), drafted), /*keeps=*/true);
  ExpectSame(DecodeWith(small.get(), drafted, drafter->Serve(ManySessions())), without);
  EXPECT_GT(preemptions_, 10u);
  EXPECT_GT(drafted_, 800u);
  ExpectServed();
}

INSTANTIATE_TEST_SUITE_P(Drafters, BlockEngineTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("DSpark") : std::string("DFlash");
});

}  // namespace
}  // namespace coppice::worker
