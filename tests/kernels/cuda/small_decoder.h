// A decoder with random weights over any backend, and random steps for it: requests come, are
// prefilled in chunks, grow forests, commit, and leave.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "model/kv/block_manager.h"
#include "model/transformer.h"
#include "plan/step_plan.h"
#include "tests/kernels/cuda/test_backend.h"

namespace coppice::kernels {

// Which parts a decoder has.
enum class SmallFamily {
  kLlama,     // RMS norms, rotary positions, SwiGLU
  kWindows,   // norms around, of heads too; windows, caps, scales, two tables of rotary positions
  kLearned,   // layer norms with biases, learned positions, no gate
  kAfterSum,  // the same with the norms after the sums, and a projected embedding
};

// The same seed gives the same weights on every backend. Two layers, 4 query heads and 2 KV heads
// of 16, biases on q, k and v.
class SmallDecoder {
 public:
  static constexpr int kVocab = 600, kMaxRows = 100, kMaxPositions = 1024;
  static constexpr int64_t kBlocks = 200;

  SmallDecoder(std::unique_ptr<TestBackend> backend, DType dtype, int max_rows = kMaxRows,
               SmallFamily family = SmallFamily::kLlama);

  Backend* backend() const { return backend_->get(); }
  Pass* pass() const { return decoder_.get(); }
  // Runs the plan and expects no error.
  const StepRows* Run(const StepPlan& plan);

 private:
  std::unique_ptr<Weight> Matrix(int64_t rows, int64_t columns, bool bias = false);
  std::unique_ptr<Weight> Gain(int64_t size, bool bias);
  model::TransformerWeights Weights(const model::ModelConfig& config);

  std::unique_ptr<TestBackend> backend_;
  const DType dtype_;
  uint64_t seed_ = 0;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<model::Transformer> decoder_;
};

// The first `rows` tokens of a request, the last `needs` of which have a need.
StepPlan PrefillPlan(int rows, int needs);

// Plans that pass CheckPlan, for decoders as above. Every plan must be run, in order.
class RandomSteps {
 public:
  explicit RandomSteps(uint64_t seed);

  // Of the forms of needs that `form` names; some have commits alone.
  StepPlan Next(RowNeed::Form form);

 private:
  struct Request {
    model::SequenceHandle sequence;
    std::vector<TokenId> prompt;  // what is not prefilled yet
    std::vector<model::KvNode> nodes;
  };
  int Pick(int count) { return static_cast<int>(generator_() % count); }
  void Open();
  void Close(size_t request);
  // Moves one node and what leads to it to the prefix; the other nodes go.
  void Commit(Request* request);

  std::mt19937_64 generator_;
  model::BlockManager blocks_;
  std::vector<Request> requests_;
  std::vector<KvCopy> commits_;
  uint64_t step_ = 0;
};

}  // namespace coppice::kernels
