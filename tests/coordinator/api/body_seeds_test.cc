// The fuzzer of request bodies over its seeds, over valid bodies and random changes of both.
#include "tests/coordinator/api/body_mutator.h"
#include "tests/testing/fuzz_seeds.h"

namespace coppice::coordinator {
namespace {

TEST(BodySeeds, EverySeedAndEveryChangeIsParsedOrRefused) {
  std::vector<std::string> seeds = test::ReadSeeds({"tests/coordinator/api/seeds"});
  ASSERT_GE(seeds.size(), 5u);
  seeds.insert(seeds.end(), ValidBodies().begin(), ValidBodies().end());
  test::RunSeedsAndChanges(seeds, 3000);
}

TEST(BodySeeds, MutatedBodies) {
  BodyMutator mutator(1);
  for (int i = 0; i < 20000; ++i) test::RunTarget(mutator.Next());
}

}  // namespace
}  // namespace coppice::coordinator
