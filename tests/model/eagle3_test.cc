// The forward pass of EAGLE-3 heads against a float64 one: prompts in chunks, forests in which each
// node has a state of its own, true states after drafted ones. What is read of folders:
// eagle3_config_test.cc, eagle3_load_test.cc.
#include <gtest/gtest.h>

#include <string>

#include "model/model_runner.h"
#include "tests/model/eagle3_run.h"

namespace coppice::model {
namespace {

class Eagle3 : public testing::TestWithParam<HeadShape> {
 protected:
  static ModelRunnerOptions Options() {
    ModelRunnerOptions options;
    options.weight_dtype = GetParam().weight_dtype;
    options.kv_dtype = GetParam().kv_dtype;
    options.max_rows = 32;
    return options;
  }
};

TEST_P(Eagle3, RowsOfAPromptAreThoseOfTheReference) {
  const test::TinyLlama target = HeadTarget();
  HeadRun run(HeadOf(GetParam(), target), target, Options(), GetParam().relative);
  ASSERT_TRUE(run.ok());
  ReadPrompt(&run);
}

TEST_P(Eagle3, ForestsHaveStatesOfTheirOwnUntilTrueOnesCome) {
  const test::TinyLlama target = HeadTarget();
  HeadRun run(HeadOf(GetParam(), target), target, Options(), GetParam().relative);
  ASSERT_TRUE(run.ok());
  GrowForests(&run);
}

INSTANTIATE_TEST_SUITE_P(Heads, Eagle3, testing::ValuesIn(HeadShapes()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace coppice::model
