// Flags of coppice-draft that belong together.
#include "draft_node/draft_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_eagle3.h"

namespace coppice::draft_node {
namespace {

using ::testing::HasSubstr;

std::string FaultsOf(DraftFlags* flags) {
  flags->node.energy.source = "off";
  return std::string(Flags(DraftFlagTable(flags)).Check().message());
}

TEST(DraftFlagsTest, ADraftThatTakesStatesNeedsItsTarget) {
  test::TempDir target, head;
  const test::TinyLlama model = test::MakeTinyLlama({.layers = 4});
  test::WriteTinyLlama(model, target.path());
  test::WriteTinyLlama(test::MakeTinyEagle3(model), head.path());
  DraftFlags flags;
  flags.node.runner.dir = head.path();
  EXPECT_THAT(FaultsOf(&flags), HasSubstr("--target: empty, but " + head.path() +
                                          " takes hidden states of its target"));
  flags.node.runner.target = target.path();
  EXPECT_EQ(FaultsOf(&flags), "");
  DraftFlags independent;
  independent.node.runner.dir = target.path();
  EXPECT_EQ(FaultsOf(&independent), "");
}

}  // namespace
}  // namespace coppice::draft_node
