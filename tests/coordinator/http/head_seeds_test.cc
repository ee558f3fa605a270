// The fuzzer of HTTP heads over its seeds and random changes of them.
#include "tests/testing/fuzz_seeds.h"

namespace coppice::coordinator {
namespace {

TEST(HeadSeeds, EverySeedAndEveryChangeIsReadOrRefused) {
  const std::vector<std::string> seeds = test::ReadSeeds({"tests/coordinator/http/seeds"});
  ASSERT_GE(seeds.size(), 5u);
  test::RunSeedsAndChanges(seeds, 30000);
}

}  // namespace
}  // namespace coppice::coordinator
