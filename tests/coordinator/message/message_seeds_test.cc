// The fuzzer of answers over its seeds and random changes of them.
#include "tests/testing/fuzz_seeds.h"

namespace coppice::coordinator {
namespace {

TEST(MessageSeeds, EverySeedAndEveryChangeHasPartsThatGrow) {
  const std::vector<std::string> seeds = test::ReadSeeds({"tests/coordinator/message/seeds"});
  ASSERT_GE(seeds.size(), 20u);
  test::RunSeedsAndChanges(seeds, 6000);
}

}  // namespace
}  // namespace coppice::coordinator
