// The states that a target keeps for a head as published, against the reference of heads over the
// reference of targets: layers by default and as each layout counts them, and the norms before fc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "kernels/element.h"
#include "model/model_runner.h"
#include "tests/model/reference_eagle3.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

struct Published {
  const char* name;
  const char* family = "llama";
  std::vector<int> layers;  // what the head must get
  bool says_layers = true;  // else they are the default
  bool is_speculator = false;
  const char* norm = "";  // a field that is true
};

void PrintTo(const Published& head, std::ostream* out) { *out << head.name; }

class Eagle3Target : public testing::TestWithParam<Published> {};

test::TinyLlama TargetOf(const Published& head) {
  if (std::string(head.family) == "llama") return test::MakeTinyLlama({.layers = 8});
  return test::MakeTinyFamily(head.family, {.layers = 8});
}

test::TinyLlama HeadOf(const Published& published, const test::TinyLlama& target) {
  test::TinyLlama head =
      test::MakeTinyEagle3(target, {.layers = published.layers, .has_embedding = true});
  if (!published.says_layers) test::SetConfig(&head, "eagle_config", "null");
  if (published.is_speculator) test::StoreAsSpeculator(&head);
  const std::string norm = published.norm;
  if (norm.empty()) return head;
  test::SetConfig(&head, norm, "true");
  const int64_t columns = head.tensors["fc.weight"].shape[1];
  const auto gain = [&](const std::string& name, int64_t size) {
    head.tensors[name] = test::tiny_llama::RandomTensor(name, {size}, "F32", 1, 0.3, 9);
  };
  if (norm == "norm_before_fc") gain("input_norm.weight", columns);
  for (int i = 0; norm == "fc_norm" && i < 3; ++i)
    gain("fc_norm." + std::to_string(i) + ".weight", columns / 3);
  return head;
}

TEST_P(Eagle3Target, KeepsTheStatesThatTheHeadWasTrainedOn) {
  const test::TinyLlama target = TargetOf(GetParam()), head = HeadOf(GetParam(), target);
  test::TempDir dir, head_dir;
  test::WriteTinyLlama(target, dir.path());
  test::WriteTinyLlama(head, head_dir.path());
  ModelRunnerOptions options;
  options.dir = dir.path();
  options.states_for = head_dir.path();
  options.kv_bytes = 4 << 20;
  options.threads = 1;
  const auto single = comm::MakeSingleCommunicator();
  const auto runner = ModelRunner::Load(options, single.get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  const std::vector<TokenId> tokens = {5, 17, 3, 44, 60, 8, 21};
  int cached = 0;
  const SequenceHandle sequence = (*runner)->blocks()->Open({}, &cached);
  const auto slots = (*runner)->blocks()->AppendPrefix(sequence, tokens);
  ASSERT_TRUE(slots.ok()) << slots.status();
  StepBuilder step = (*runner)->NewStep();
  step.AddPrefixRows(sequence, tokens, *slots);
  ASSERT_TRUE((*runner)->Submit(std::move(step)).ok());
  ASSERT_TRUE((*runner)->Wait().ok());
  const int columns = (*runner)->state_columns();
  std::vector<uint16_t> states(tokens.size() * columns);
  ASSERT_TRUE((*runner)->ReadStates(*slots, states.data()).ok());
  const ReferenceEagle3 reference(head, target);
  const auto outputs = ReferenceOutputs(target, tokens);
  for (size_t t = 0; t < tokens.size(); ++t) {
    std::vector<std::vector<double>> hidden;
    for (const int layer : GetParam().layers) hidden.push_back(outputs[layer][t]);
    const std::vector<double> expected = reference.Join(hidden);
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    for (int c = 0; c < columns; ++c) {
      ASSERT_NEAR(kernels::Bf16ToFloat(states[t * columns + c]), expected[c],
                  0x1p-8 * std::fabs(expected[c]) + 1e-5 * largest)
          << "token " << t << ", column " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Heads, Eagle3Target,
    testing::Values(Published{.name = "Default", .layers = {1, 3, 4}, .says_layers = false},
                    Published{.name = "SpecForge", .layers = {0, 2, 6}},
                    Published{.name = "InAnyOrder", .layers = {5, 0, 3}},
                    Published{.name = "Speculator", .layers = {0, 2, 6}, .is_speculator = true},
                    Published{.name = "OneNorm",
                              .layers = {0, 2, 6},
                              .is_speculator = true,
                              .norm = "norm_before_fc"},
                    Published{.name = "ThreeNorms", .layers = {0, 2, 6}, .norm = "fc_norm"},
                    Published{.name = "Qwen3", .family = "qwen3", .layers = {0, 2, 6}},
                    Published{.name = "Gemma3", .family = "gemma3", .layers = {0, 2, 6}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace coppice::model
