// The fuzzer of the detokenizer and the stop matchers over its seeds and random changes of them.
#include "tests/testing/fuzz_seeds.h"

namespace coppice::coordinator {
namespace {

TEST(StopSeeds, EverySeedAndEveryChangeIsAsTheNaiveSearch) {
  const std::vector<std::string> seeds = test::ReadSeeds({"tests/coordinator/request/seeds"});
  ASSERT_GE(seeds.size(), 8u);
  test::RunSeedsAndChanges(seeds, 6000);
}

}  // namespace
}  // namespace coppice::coordinator
