// The forward pass of EAGLE-3 heads against a float64 one: prompts in chunks, forests in which each
// node has a state of its own, true states after drafted ones. What is read of folders:
// eagle3_config_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "kernels/element.h"
#include "model/draft_checkpoint.h"
#include "model/model_runner.h"
#include "model/target_states.h"
#include "model/weights.h"
#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_eagle3.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using testing::HasSubstr;

using State = std::vector<uint16_t>;  // bf16

constexpr int kVocab = 160;

double Uniform(uint64_t i) { return (sampling::Finalize(i + 77) >> 11) * 0x1p-53; }

// A true state, as a target would send it.
State TrueState(uint64_t number, int columns) {
  State state(columns);
  for (int c = 0; c < columns; ++c) {
    state[c] = kernels::FloatToBf16(
        static_cast<float>(4 * Uniform(number * 4096 + static_cast<uint64_t>(c)) - 2));
  }
  return state;
}

std::vector<double> Values(const State& state) {
  std::vector<double> values;
  for (const uint16_t bits : state) values.push_back(kernels::Bf16ToFloat(bits));
  return values;
}

// One sequence of a head that is loaded, beside the reference. Rows are known by the numbers of the
// reference.
class HeadRun {
 public:
  // relative: the largest error of logits, as a part of the largest logit.
  HeadRun(const test::TinyLlama& head, const test::TinyLlama& target, ModelRunnerOptions options,
          double relative)
      : reference_(head, target), relative_(relative) {
    test::WriteTinyLlama(target, target_dir_.path());
    test::WriteTinyLlama(head, dir_.path());
    options.dir = dir_.path();
    options.target = target_dir_.path();
    options.kv_bytes = 4 << 20;
    options.threads = 1;
    auto runner = ModelRunner::Load(options, single_.get());
    EXPECT_TRUE(runner.ok()) << runner.status();
    if (!runner.ok()) return;
    runner_ = *std::move(runner);
    int cached = 0;
    sequence_ = runner_->blocks()->Open({}, &cached);
    Begin();
  }
  bool ok() const { return runner_ != nullptr; }
  int columns() const { return runner_->config().hidden_size; }

  // Adds rows to the prefix, each with the next true state, and with logits if `needs`.
  void Prefix(int count, uint64_t first_state, bool needs) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i)
      tokens.push_back(static_cast<TokenId>(sampling::Finalize(first_state + i) % kVocab));
    const auto slots = runner_->blocks()->AppendPrefix(sequence_, tokens);
    ASSERT_TRUE(slots.ok()) << slots.status();
    const int first = step_->rows();
    int need = 0;
    if (needs) {
      need = step_->AddPrefixRows(sequence_, tokens, *slots, [](int) { return RowNeed(); });
    } else {
      step_->AddPrefixRows(sequence_, tokens, *slots);
    }
    for (int i = 0; i < count; ++i) {
      const State state = TrueState(first_state + i, columns());
      step_->SetState(first + i, state);
      prefix_ = reference_.Add(prefix_, tokens[i], Values(state));
      if (needs) needs_.push_back({need + i, prefix_, (*slots)[i]});
    }
  }

  // Adds a node after row `before` (-1: the end of the prefix). state: nullptr: what row `before` has
  // handed on. Returns its number.
  int Node(int before, TokenId token, const State* state, bool needs = true) {
    BlockManager* const blocks = runner_->blocks();
    const KvNode parent = before < 0 ? kPrefixEnd : at_.at(before);
    const int before_it = before < 0 ? prefix_ : before;
    const auto node = blocks->AddNode(sequence_, parent, token);
    COPPICE_CHECK(node.ok());
    const int row = step_->rows(), slot = blocks->slot(sequence_, *node);
    const int number =
        reference_.Add(before_it, token, state != nullptr ? Values(*state) : kept_.at(before_it));
    if (needs) {
      needs_.push_back({step_->AddNodeRow(sequence_, *node, token, RowNeed()), number, slot});
    } else {
      step_->AddNodeRow(sequence_, *node, token);
    }
    if (state != nullptr) step_->SetState(row, *state);
    at_[number] = *node;
    return number;
  }

  // Frees all nodes but these and those before them.
  void Retain(const std::vector<int>& rows) {
    std::vector<KvNode> nodes;
    for (const int row : rows) nodes.push_back(at_.at(row));
    runner_->blocks()->Retain(sequence_, nodes);
  }
  // Moves row and those before it to the prefix.
  void Commit(int row) {
    const std::vector<KvNode> leaves = {at_.at(row)};
    const auto moved = runner_->blocks()->Commit(sequence_, leaves, runner_->commits());
    ASSERT_TRUE(moved.ok()) << moved.status();
    at_[row] = kPrefixEnd;
    prefix_ = row;
  }

  // Runs the step and compares logits and states of all rows that have needs.
  void Run() {
    const absl::Status submitted = runner_->Submit(std::move(*step_));
    ASSERT_TRUE(submitted.ok()) << submitted;
    const auto rows = runner_->Wait();
    ASSERT_TRUE(rows.ok()) << rows.status();
    for (const Needed& needed : needs_) {
      CompareLogits((*rows)->Whole(needed.need), reference_.logits(needed.row));
      State state(columns());
      ASSERT_TRUE(runner_->ReadStates({needed.slot}, state.data()).ok());
      CompareStates(Values(state), reference_.state(needed.row));
      kept_[needed.row] = Values(state);  // so that roundings of states do not add up
    }
    needs_.clear();
    Begin();
  }

 private:
  struct Needed {
    int need, row;
    int32_t slot;
  };

  void Begin() { step_ = std::make_unique<StepBuilder>(runner_->NewStep()); }

  void CompareLogits(absl::Span<const float> found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    double largest = 0;
    for (const double logit : expected) {
      if (std::isfinite(logit)) largest = std::max(largest, std::fabs(logit));
    }
    for (size_t id = 0; id < expected.size(); ++id) {
      if (std::isinf(expected[id])) {
        ASSERT_EQ(found[id], expected[id]) << "id " << id << " has no row";
      } else {
        ASSERT_NEAR(found[id], expected[id], relative_ * largest) << "id " << id;
      }
    }
  }
  void CompareStates(const std::vector<double>& found, const std::vector<double>& expected) {
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    for (size_t c = 0; c < expected.size(); ++c) {
      ASSERT_NEAR(found[c], expected[c], 0x1p-8 * std::fabs(expected[c]) + relative_ * largest);
    }
  }

  ReferenceEagle3 reference_;
  const double relative_;
  test::TempDir target_dir_, dir_;
  const std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  std::unique_ptr<ModelRunner> runner_;
  SequenceHandle sequence_ = -1;
  std::unique_ptr<StepBuilder> step_;
  std::vector<Needed> needs_;
  int prefix_ = -1;                          // the last row of the prefix
  std::map<int, KvNode> at_;                 // by row
  std::map<int, std::vector<double>> kept_;  // states that the pool has, by row
};

struct Shape {
  const char* name;
  test::TinyEagle3Options head = {};
  const char* weight_dtype = "auto";
  const char* kv_dtype = "auto";
  double relative = 1e-5;
  std::vector<std::pair<const char*, const char*>> fields = {};
  bool is_speculator = false;
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

std::vector<int> EveryThirdId() {
  std::vector<int> ids;
  for (int id = 1; id < kVocab; id += 3) ids.push_back(id);
  return ids;
}

test::TinyLlama Target() {
  return test::MakeTinyLlama({.hidden = 64, .layers = 8, .vocab = kVocab, .max_positions = 128});
}

test::TinyLlama HeadOf(const Shape& shape, const test::TinyLlama& target) {
  test::TinyLlama head = test::MakeTinyEagle3(target, shape.head);
  if (shape.is_speculator) test::StoreAsSpeculator(&head);
  const auto gain = [&](const std::string& name, int64_t size) {
    head.tensors[name] = test::tiny_llama::RandomTensor(name, {size}, shape.head.dtype, 1, 0.2, 5);
  };
  for (const auto& [field, value] : shape.fields) {
    test::SetConfig(&head, field, value);
    if (std::string(field) == "norm_before_fc") gain("input_norm.weight", 3 * 64);
    if (std::string(field) != "fc_norm") continue;
    for (int i = 0; i < 3; ++i) gain("fc_norm." + std::to_string(i) + ".weight", 64);
  }
  if (std::string(shape.name) == "Qwen3") {
    for (const char* norm : {"q_norm", "k_norm"})
      gain(std::string("midlayer.self_attn.") + norm + ".weight", shape.head.head_dim);
  }
  return head;
}

class Eagle3 : public testing::TestWithParam<Shape> {
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
  const test::TinyLlama target = Target();
  HeadRun run(HeadOf(GetParam(), target), target, Options(), GetParam().relative);
  ASSERT_TRUE(run.ok());
  uint64_t next = 0;
  for (const int chunk : {1, 17, 9, 2}) {
    run.Prefix(chunk, next, /*needs=*/chunk != 17);
    next += chunk;
    run.Run();
    if (HasFatalFailure()) return;
  }
}

// Rounds as a draft node makes them: a forest, of which some nodes are accepted; their rows come
// anew with true states, in the pass of the next roots.
TEST_P(Eagle3, ForestsHaveStatesOfTheirOwnUntilTrueOnesCome) {
  const test::TinyLlama target = Target();
  HeadRun run(HeadOf(GetParam(), target), target, Options(), GetParam().relative);
  ASSERT_TRUE(run.ok());
  uint64_t next = 1000;
  const auto truth = [&] { return TrueState(next++, run.columns()); };
  run.Prefix(19, /*first_state=*/0, /*needs=*/false);
  const State of_first = truth(), of_second = truth();
  //      a        b
  //     / \       |
  //    c   d      e
  //   / \         |
  //  f   g        h
  const int a = run.Node(-1, 7, &of_first), b = run.Node(-1, 9, &of_second);
  run.Run();
  const int c = run.Node(a, 11, nullptr);
  run.Node(a, 12, nullptr);
  const int e = run.Node(b, 11, nullptr);
  run.Run();
  run.Node(c, 20, nullptr);
  run.Node(c, 21, nullptr);
  run.Node(e, 22, nullptr);
  run.Run();
  if (HasFatalFailure()) return;
  // a, c are accepted and a token after them: c and what is below it are dropped.
  run.Retain({a});
  run.Commit(a);
  const State of_c = truth(), of_root = truth();
  const int again = run.Node(-1, 11, &of_c, /*needs=*/false);
  const int root = run.Node(again, 50, &of_root);
  run.Run();
  const int i = run.Node(root, 3, nullptr);
  run.Run();
  run.Node(i, 4, nullptr);
  run.Node(i, 5, nullptr);
  run.Run();
}

std::vector<Shape> Shapes() {
  const test::TinyEagle3Options small = {.ids = EveryThirdId()};
  // Llama-3.1-8B and Qwen3-8B heads with a 32nd of their hidden sizes.
  test::TinyEagle3Options llama = {.ids = EveryThirdId(), .heads = 2, .kv_heads = 1};
  llama.head_dim = 128, llama.intermediate = 224;
  test::TinyEagle3Options wide = {.ids = EveryThirdId(), .has_embedding = true, .hidden = 96};
  wide.head_dim = 32;
  const auto with = [](test::TinyEagle3Options options, const char* dtype) {
    options.dtype = dtype;
    return options;
  };
  return {
      {"Whole", {}},
      {"Reduced", small},
      {"Llama", llama},
      {"Qwen3", llama},
      {"WiderThanItsTarget", wide},
      {.name = "Speculator", .head = small, .is_speculator = true},
      {.name = "Window",
       .head = small,
       .fields = {{"layer_types", R"(["sliding_attention"])"}, {"sliding_window", "6"}}},
      {.name = "NormedResidual", .head = small, .fields = {{"norm_before_residual", "true"}}},
      {.name = "NormedOutput",
       .head = small,
       .fields = {{"norm_output", "true"}, {"norm_before_fc", "true"}}},
      {.name = "AllNorms",
       .head = small,
       .fields = {{"norm_output", "true"}, {"norm_before_residual", "true"}, {"fc_norm", "true"}}},
      {.name = "Half", .head = with(llama, "F16")},
      {.name = "Bf16", .head = with(llama, "BF16"), .relative = 2e-2},
      {.name = "Int8", .head = with(llama, "BF16"), .weight_dtype = "int8", .relative = 0.1},
      {.name = "Int4", .head = with(llama, "BF16"), .weight_dtype = "int4", .relative = 0.3},
      {.name = "Int8Kv", .head = llama, .kv_dtype = "int8", .relative = 5e-2},
  };
}

INSTANTIATE_TEST_SUITE_P(Heads, Eagle3, testing::ValuesIn(Shapes()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Eagle3Load, RefusesTensorsByName) {
  const test::TinyLlama target = Target();
  test::TempDir dir, target_dir;
  test::WriteTinyLlama(target, target_dir.path());
  const test::TinyLlama good = test::MakeTinyEagle3(target, {.ids = EveryThirdId()});
  const auto refusal = [&](const std::function<void(test::TinyLlama*)>& spoil) {
    test::TinyLlama head = good;
    spoil(&head);
    test::WriteTinyLlama(head, dir.path());
    const auto config = ReadDraftConfig(dir.path(), target_dir.path());
    EXPECT_TRUE(config.ok()) << config.status();
    const auto checkpoint = OpenCheckpoint(dir.path(), *config, target_dir.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    const absl::Status checked = CheckTensors(*config, checkpoint->get());
    const auto loaded = LoadForTest({.dir = dir.path(), .target = target_dir.path()});
    EXPECT_EQ(checked, loaded.status()) << "--check says what loading says";
    return std::string(checked.message());
  };
  const auto reshape = [](const char* name, std::vector<int64_t> shape) {
    return [=](test::TinyLlama* head) {
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      head->tensors[name] = {"F32", shape, std::vector<float>(count)};
    };
  };
  EXPECT_EQ(refusal([](test::TinyLlama*) {}), "");
  EXPECT_THAT(refusal(reshape("fc.weight", {64, 128})),
              HasSubstr("fc.weight: shape [64, 128], expected [64, 192]"));
  EXPECT_THAT(refusal(reshape("midlayer.self_attn.q_proj.weight", {64, 64})),
              HasSubstr("midlayer.self_attn.q_proj.weight: shape [64, 64], expected [64, 128]"));
  EXPECT_THAT(
      refusal([](test::TinyLlama* head) { head->tensors.erase("midlayer.hidden_norm.weight"); }),
      HasSubstr("midlayer.hidden_norm.weight: missing"));
  EXPECT_THAT(refusal([](test::TinyLlama* head) { head->tensors.erase("d2t"); }),
              HasSubstr("d2t: missing"));
  EXPECT_THAT(refusal([](test::TinyLlama* head) { head->tensors["d2t"].values.back() = kVocab; }),
              HasSubstr("d2t: row 52 has 160, expected -52 to 107"));
  EXPECT_THAT(refusal([](test::TinyLlama* head) {
                head->tensors["norm.weight"].values[3] = std::nanf("");
              }),
              HasSubstr("norm.weight: element 3 is nan"));
  EXPECT_THAT(refusal([](test::TinyLlama* head) {
                test::SetConfig(head, "norm_before_fc", "true");
                head->tensors["input_norm.weight"] = {"F32", {192}, std::vector<float>(192, 1)};
                head->tensors["input_norm.weight"].values[7] = INFINITY;
              }),
              HasSubstr("input_norm.weight: element 7 is inf"));
  EXPECT_THAT(refusal(reshape("mask_hidden", {1, 192})),
              HasSubstr("mask_hidden: a head that drafts several tokens in one pass"));
}

TEST(Eagle3Load, AWiderHeadNeedsAnEmbeddingOfItsOwn) {
  const test::TinyLlama target = Target();
  test::TempDir dir, target_dir;
  test::WriteTinyLlama(target, target_dir.path());
  test::WriteTinyLlama(test::MakeTinyEagle3(target, {.hidden = 96}), dir.path());
  const auto loaded = LoadForTest({.dir = dir.path(), .target = target_dir.path()});
  EXPECT_THAT(loaded.status().message(),
              HasSubstr("the draft has no embed_tokens.weight and cannot take this: "));
  EXPECT_THAT(loaded.status().message(), HasSubstr("shape [160, 64], expected [160, 96]"));
}

TEST(Eagle3Load, HasOneRank) {
  const test::TinyLlama target = Target();
  test::TempDir dir, target_dir;
  test::WriteTinyLlama(target, target_dir.path());
  test::WriteTinyLlama(test::MakeTinyEagle3(target), dir.path());
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    const auto loaded = LoadForTest({.dir = dir.path(), .target = target_dir.path()}, communicator);
    EXPECT_THAT(loaded.status().message(),
                HasSubstr("LlamaForCausalLMEagle3 is a draft that takes the states of its target, "
                          "not served by several ranks (--tp)"));
  });
}

// Values that are no numbers make drafts that are never accepted; the pass itself goes on.
TEST(Eagle3Load, HostileValuesStayInTheirRows) {
  const test::TinyLlama target = Target();
  test::TinyLlama head = test::MakeTinyEagle3(target);
  head.tensors["midlayer.mlp.down_proj.weight"].values[0] = std::nanf("");
  test::TempDir dir, target_dir;
  test::WriteTinyLlama(target, target_dir.path());
  test::WriteTinyLlama(head, dir.path());
  ModelRunnerOptions options;
  options.dir = dir.path();
  options.target = target_dir.path();
  options.kv_bytes = 1 << 20;
  options.threads = 1;
  const auto single = comm::MakeSingleCommunicator();
  const auto runner = ModelRunner::Load(options, single.get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  int cached = 0;
  const SequenceHandle sequence = (*runner)->blocks()->Open({}, &cached);
  const auto slots = (*runner)->blocks()->AppendPrefix(sequence, {3});
  StepBuilder step = (*runner)->NewStep();
  step.AddPrefixRows(sequence, {3}, *slots, [](int) { return RowNeed(); });
  step.SetState(0, TrueState(1, 64));
  ASSERT_TRUE((*runner)->Submit(std::move(step)).ok());
  const auto rows = (*runner)->Wait();
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(std::isnan((*rows)->Whole(0)[0]));
}

}  // namespace
}  // namespace coppice::model
