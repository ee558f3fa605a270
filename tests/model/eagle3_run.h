// A head of EAGLE-3 in a runner, beside the float64 forward pass of reference_eagle3.h: what the tests
// of a backend read and grow, and on which shapes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/communicator.h"
#include "kernels/element.h"
#include "model/model_runner.h"
#include "sampling/rng.h"
#include "tests/model/reference_eagle3.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {

using State = std::vector<uint16_t>;  // bf16

inline constexpr int kHeadVocab = 160;

// A true state, as a target would send it.
State TrueState(uint64_t number, int columns);
std::vector<double> ValuesOf(const State& state);

// A head of HeadTarget.
struct HeadShape {
  const char* name;
  test::TinyEagle3Options head = {};
  const char* weight_dtype = "auto";
  const char* kv_dtype = "auto";
  double relative = 1e-5;
  std::vector<std::pair<const char*, const char*>> fields = {};
  bool is_speculator = false;
};
inline void PrintTo(const HeadShape& shape, std::ostream* out) { *out << shape.name; }

std::vector<int> EveryThirdId();
test::TinyLlama HeadTarget();
test::TinyLlama HeadOf(const HeadShape& shape, const test::TinyLlama& target);
// Families, types of weights and of KV, and every variant that is served.
std::vector<HeadShape> HeadShapes();

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
      tokens.push_back(static_cast<TokenId>(sampling::Finalize(first_state + i) % kHeadVocab));
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
      prefix_ = reference_.Add(prefix_, tokens[i], ValuesOf(state));
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
        reference_.Add(before_it, token, state != nullptr ? ValuesOf(*state) : kept_.at(before_it));
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
      CompareStates(ValuesOf(state), reference_.state(needed.row));
      kept_[needed.row] = ValuesOf(state);  // so that roundings of states do not add up
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

// Of a new run: reads a prompt in chunks.
void ReadPrompt(HeadRun* run);
// Of a new run: rounds as a draft node makes them: a forest, of which some nodes are accepted; their
// rows come anew with true states, in the pass of the next roots.
void GrowForests(HeadRun* run);

}  // namespace coppice::model
