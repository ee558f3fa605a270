// The fuzzer of links between nodes over its seeds and random changes of them.
#include "tests/testing/fuzz_seeds.h"

namespace coppice::comm {
namespace {

TEST(SecureLinkSeeds, NoSeedAndNoChangeIsTrusted) {
  const std::vector<std::string> seeds = test::ReadSeeds({"tests/comm/seeds"});
  ASSERT_GE(seeds.size(), 10u);
  test::RunSeedsAndChanges(seeds, 3000);
}

}  // namespace
}  // namespace coppice::comm
