// The fuzzer of chat templates over its seeds, every template of the fixtures and of the families,
// and random changes of them.
#include "tests/testing/fuzz_seeds.h"

namespace coppice::tokenizer {
namespace {

TEST(ChatTemplateSeeds, EverySeedAndEveryChangeEnds) {
  const std::vector<std::string> seeds = test::ReadSeeds(
      {"tests/tokenizer/chat_template/seeds", "tests/tokenizer/chat_template/fixtures/templates",
       "tokenizer/chat_template/families"});
  ASSERT_GT(seeds.size(), 25u);
  test::RunSeedsAndChanges(seeds, 3000);
}

}  // namespace
}  // namespace coppice::tokenizer
