// Every call of the CUDA runtime and of cuBLASLt fails in turn, while a model is loaded and while
// its steps run: nothing hangs, nothing stays allocated, and the error names the call and its
// purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>

#include "base/status.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "model/model_runner.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;
using testing::HasSubstr;

class WarningSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit WarningSink(std::vector<std::string>* warnings) : warnings_(warnings) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (message.level != spdlog::level::warn) return;
    warnings_->emplace_back(message.payload.data(), message.payload.size());
  }
  void flush_() override {}

  std::vector<std::string>* const warnings_;
};

class FailureTest : public testing::Test {
 protected:
  FailureTest() {
    test::TinyLlamaOptions tiny;
    tiny.layers = 1;
    tiny.attention_bias = true;
    tiny.vocab = 256;  // worth listing
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
    fake::Recover();
    spdlog::default_logger()->sinks().push_back(sink_);
  }
  ~FailureTest() override {
    spdlog::default_logger()->sinks().pop_back();
    fake::Configure({});
    fake::Recover();
  }

  // Loads, prefills, runs a step with a forest and a commit, and some whose rows come whole at
  // last.
  absl::Status LoadAndRun() {
    ModelRunnerOptions options;
    options.dir = dir_.path();
    options.backend = "cuda";
    options.kv_bytes = kv_bytes_;
    options.threads = 1;
    options.max_rows = 16;
    options.always_list = true;
    options.dtype = "bf16";  // the type with the most calls
    options.overlap_launches = overlap_;
    COPPICE_ASSIGN_OR_RETURN(const auto runner, ModelRunner::Load(options, one_.get()));
    const absl::Status status = RunSteps(runner.get());
    calls_until_the_end_ = fake::CountCalls();
    return status;
  }

  static absl::Status RunSteps(ModelRunner* runner) {
    BlockManager* blocks = runner->blocks();
    int cached = 0;
    const SequenceHandle sequence = blocks->Open({4, 5, 6, 7, 8}, &cached);
    StepBuilder first = runner->NewStep();
    COPPICE_ASSIGN_OR_RETURN(const auto slots, blocks->AppendPrefix(sequence, {4, 5, 6, 7}));
    first.AddPrefixRows(sequence, {4, 5, 6, 7}, slots);
    COPPICE_ASSIGN_OR_RETURN(const KvNode root, blocks->AddNode(sequence, kPrefixEnd, 8));
    first.AddNodeRow(sequence, root, 8, RowNeed());
    COPPICE_RETURN_IF_ERROR(Run(runner, std::move(first)));
    COPPICE_RETURN_IF_ERROR(blocks->Commit(sequence, {root}, runner->commits()).status());

    RowNeed need;
    need.form = RowNeed::Form::kTop;
    need.count = 3;
    need.sums = true;
    need.cover = 0.999;
    // Op by op, captured, and replayed.
    for (const TokenId first_token : {9, 11, 13}) {
      StepBuilder step = runner->NewStep();
      for (const TokenId token : {first_token, first_token + 1}) {
        COPPICE_ASSIGN_OR_RETURN(const KvNode node, blocks->AddNode(sequence, kPrefixEnd, token));
        step.AddNodeRow(sequence, node, token, need);
      }
      COPPICE_RETURN_IF_ERROR(Run(runner, std::move(step)));
    }
    return absl::OkStatus();
  }
  static absl::Status Run(ModelRunner* runner, StepBuilder step) {
    COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
    runner->WaitForHead();
    return runner->Wait().status();
  }

  test::TempDir dir_;
  std::unique_ptr<comm::Communicator> one_ = comm::MakeSingleCommunicator();
  int64_t kv_bytes_ = 1 << 18;
  bool overlap_ = true;
  int64_t calls_until_the_end_ = 0;
  std::vector<std::string> warnings_;

 private:
  std::shared_ptr<spdlog::sinks::sink> sink_ = std::make_shared<WarningSink>(&warnings_);
};

// Their failure changes nothing: what they free is freed, what they check is asked again, and there
// are other algorithms.
const std::set<std::string> kHarmless = {"cudaGetLastError",
                                         "cudaFree",
                                         "cudaFreeHost",
                                         "cudaGraphDestroy",
                                         "cudaGraphExecDestroy",
                                         "cublasLtMatmulAlgoCheck",
                                         "cublasLtMatmulAlgoConfigGetAttribute"};
// Without them steps are launched op by op, after one warning, as when a call fails in a capture;
// where launches overlap, graphs are first captured without.
const std::set<std::string> kForGraphs = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                          "cudaGraphInstantiate"};

TEST_F(FailureTest, EveryCallInTurn) {
  const int64_t begin = fake::CountCalls();
  ASSERT_TRUE(LoadAndRun().ok());
  const int64_t calls = calls_until_the_end_ - begin;
  ASSERT_GT(calls, 200);
  std::set<std::string> failed;
  std::string messages;
  int captures_failed = 0;
  for (const cudaError_t error : {cudaErrorLaunchFailure, cudaErrorMemoryAllocation}) {
    overlap_ = error == cudaErrorLaunchFailure;
    for (int64_t n = 0; n < calls; ++n) {
      fake::FailCall(n, error);
      warnings_.clear();
      const absl::Status status = LoadAndRun();
      const std::string call = fake::FailedCall();
      ASSERT_NE(call, "") << "call " << n << " was not made";
      failed.insert(call);
      if (fake::FailedInCapture() || kForGraphs.count(call)) {
        EXPECT_TRUE(status.ok()) << call << " " << n << ": " << status;
        if (kHarmless.count(call) && warnings_.empty()) continue;
        captures_failed += 1;
        ASSERT_EQ(warnings_.size(), 1u) << call << " " << n;
        EXPECT_THAT(warnings_[0],
                    HasSubstr(overlap_ ? "the launches of CUDA graphs do not overlap from now on"
                                       : "CUDA graphs are not used from now on"));
        const std::string name = call == "cudaGetLastError" ? "kernel launch" : call;
        EXPECT_THAT(warnings_[0], testing::ContainsRegex(": " + name + ": (cuda|CUBLAS)")) << n;
        if (kForGraphs.count(call)) {
          EXPECT_THAT(warnings_[0], HasSubstr(" of a step of 2 "));
        }
        if (call == "cudaGraphInstantiate" && error == cudaErrorMemoryAllocation) {
          EXPECT_THAT(warnings_[0], HasSubstr("; the device has "));
        }
      } else if (!status.ok()) {
        absl::StrAppend(&messages, status.message(), "\n");
        const std::string name = call == "cudaGetLastError" ? "kernel launch" : call;
        // What it was for, the call, the error.
        EXPECT_THAT(std::string(status.message()),
                    testing::ContainsRegex(".+: " + name + ".*: CU[A-Z_]+.*|.+: " + name +
                                           ".*: cudaError.*: .*"))
            << n;
        EXPECT_EQ(status.code(), error == cudaErrorMemoryAllocation
                                     ? absl::StatusCode::kResourceExhausted
                                     : absl::StatusCode::kInternal)
            << call << " " << n << ": " << status;
      } else {
        EXPECT_TRUE(kHarmless.count(call)) << call << " " << n << " failed, and nobody said so";
      }
      if (call == "cudaMalloc" && error == cudaErrorMemoryAllocation) {
        EXPECT_THAT(std::string(status.message()),
                    testing::ContainsRegex("cudaMalloc of [0-9]+ bytes .* MiB free of 2048 MiB"));
      }
      EXPECT_EQ(fake::CountLive().total(), 0) << call << " " << n;
      EXPECT_THAT(fake::Violations(), testing::IsEmpty()) << call << " " << n;
      fake::Recover();
    }
  }
  EXPECT_GT(captures_failed, 40);
  for (const char* call :
       {"cudaMalloc", "cudaHostAlloc", "cudaMemcpyAsync", "cudaEventQuery", "cudaEventRecord",
        "kernel launch", "cublasLtMatmul", "cudaStreamBeginCapture", "cudaStreamEndCapture",
        "cudaGraphInstantiate", "cudaGraphDestroy", "cudaGraphLaunch"})
    EXPECT_TRUE(failed.count(call)) << call;
  for (const char* purpose : {"a weight of ",
                              "a gain of ",
                              "the bias of ",
                              "a KV pool of ",
                              "a rotary table of ",
                              "a tensor BF16 [16, ",
                              "the workspace of cuBLASLt",
                              "the plan of a step",
                              "partial results of attention",
                              "the CUDA backend: ",
                              "a product of 8 rows by ",
                              "embedding: ",
                              "attention of layer 0",
                              "commit of KV",
                              "the logits of a step",
                              "the candidate lists of a step",
                              "sums of logits: ",
                              "candidate lists of pieces: ",
                              "merge of candidate lists: ",
                              "the end of a fetch: ",
                              "the body of a step: ",
                              "the step on the device: ",
                              "the head of a step of 2 rows: cudaGraphLaunch"})
    EXPECT_THAT(messages, HasSubstr(purpose));
}

// The tables and activations of experts are made while the first step is recorded.
TEST_F(FailureTest, EveryCallOfAModelWithExperts) {
  test::WriteTinyLlama(test::MakeTinyFamily("mixtral", {.layers = 1, .vocab = 256}), dir_.path());
  const int64_t begin = fake::CountCalls();
  ASSERT_TRUE(LoadAndRun().ok());
  const int64_t calls = calls_until_the_end_ - begin;
  std::string messages;
  for (int64_t n = 0; n < calls; ++n) {
    fake::FailCall(n, cudaErrorMemoryAllocation);
    const absl::Status status = LoadAndRun();
    const std::string call = fake::FailedCall();
    absl::StrAppend(&messages, status.message(), "\n");
    if (status.ok() && !fake::FailedInCapture()) {
      EXPECT_TRUE(kHarmless.count(call) || kForGraphs.count(call))
          << call << " " << n << " failed, and nobody said so";
    }
    EXPECT_EQ(fake::CountLive().total(), 0) << call << " " << n;
    EXPECT_THAT(fake::Violations(), testing::IsEmpty()) << call << " " << n;
    fake::Recover();
  }
  for (const char* purpose :
       {"a list of 5 matrices", "the activations of 5 experts", "scores of experts",
        "choice of experts", "list of experts", "gate and up of experts", "activation of experts",
        "down of experts", "sum of experts"})
    EXPECT_THAT(messages, HasSubstr(purpose));
}

// The device fails while it works: who waits is told, and the device stays lost.
TEST_F(FailureTest, EveryPieceOfWorkInTurn) {
  ASSERT_TRUE(LoadAndRun().ok());
  int failures = 0;
  for (int64_t n = 0;; ++n) {
    fake::FailWork(n, cudaErrorIllegalAddress);
    const absl::Status status = LoadAndRun();
    if (fake::FailedCall().empty()) {
      EXPECT_TRUE(status.ok()) << status;
      break;
    }
    ++failures;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("cudaErrorIllegalAddress"));
    EXPECT_EQ(fake::CountLive().total(), 0) << n;
    fake::Recover();
  }
  EXPECT_GT(failures, 40);
}

TEST_F(FailureTest, AStepThatFailedNamesItself) {
  ModelRunnerOptions options;
  options.dir = dir_.path();
  options.backend = "cuda";
  options.kv_bytes = kv_bytes_;
  options.threads = 1;
  const auto runner = ModelRunner::Load(options, one_.get()).value();
  fake::FailWork(5, cudaErrorLaunchFailure);
  const absl::Status status = RunSteps(runner.get());
  EXPECT_THAT(status.message(), HasSubstr("step 1: "));
  EXPECT_THAT(status.message(), HasSubstr("unspecified launch failure"));
}

TEST_F(FailureTest, AModelThatDoesNotFitIsRefusedBeforeItIsLoaded) {
  fake::Configure({.memory = size_t{48} << 20});
  kv_bytes_ = 64 << 20;
  const int64_t begin = fake::CountCalls();
  const absl::Status status = LoadAndRun();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::ContainsRegex("does not fit: it needs 0.07 GB on this rank .weights in BF16 "
                                     "0.00 GB, activations 0.00 GB, KV pool 0.07 GB.; the device "
                                     "has 0.0[0-9] GB free of 0.05 GB"));
  EXPECT_EQ(fake::CountLive().total(), 0);
  EXPECT_LT(fake::CountCalls() - begin, 40) << "weights were uploaded";
}

TEST_F(FailureTest, WithoutASizeTheKvPoolTakesNineTenthsOfTheDevice) {
  constexpr int64_t kMemory = int64_t{256} << 20;
  fake::Configure({.memory = kMemory});
  ModelRunnerOptions options;
  options.dir = dir_.path();
  options.backend = "cuda";
  options.threads = 1;
  options.max_rows = 16;
  const auto runner = ModelRunner::Load(options, one_.get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto held = static_cast<int64_t>(fake::CountLive().device_bytes);
  EXPECT_LT(held, kMemory * 9 / 10 + 65536);
  EXPECT_GT(held, kMemory * 9 / 10 - 65536);
  EXPECT_TRUE(RunSteps(runner->get()).ok());
}

TEST_F(FailureTest, NoRoomForTheKvPoolIsSaid) {
  fake::Configure({.memory = size_t{34} << 20});  // the workspace of cuBLASLt takes 32 MiB
  kv_bytes_ = 0;
  const absl::Status status = LoadAndRun();
  EXPECT_THAT(status.message(),
              HasSubstr("--kv_bytes: 0 bytes, all that is free, are 0 KV blocks"));
  EXPECT_EQ(fake::CountLive().total(), 0);
}

}  // namespace
}  // namespace coppice::model
