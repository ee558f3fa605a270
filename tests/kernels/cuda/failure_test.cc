// Every call of the CUDA runtime and of cuBLASLt fails in turn, while a model is loaded and while its
// steps run: nothing hangs, nothing stays allocated, and the error names the call and its purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/status.h"
#include "kernels/cuda/fake/fake_device.h"
#include "model/model_runner.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;
using testing::HasSubstr;

class FailureTest : public testing::Test {
 protected:
  FailureTest() {
    test::TinyLlamaOptions tiny;
    tiny.layers = 1;
    tiny.attention_bias = true;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
    fake::Recover();
  }
  ~FailureTest() override {
    fake::Configure({});
    fake::Recover();
  }

  // Loads, prefills, runs a step with a forest and a commit, and one whose rows come whole at last.
  absl::Status LoadAndRun() {
    ModelRunnerOptions options;
    options.dir = dir_.path();
    options.backend = "cuda";
    options.kv_bytes = kv_bytes_;
    options.threads = 1;
    options.max_rows = 16;
    options.always_list = true;
    options.dtype = "bf16";  // the type with the most calls
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

    StepBuilder second = runner->NewStep();
    RowNeed need;
    need.form = RowNeed::Form::kTop;
    need.count = 3;
    need.sums = true;
    need.cover = 0.999;
    for (const TokenId token : {9, 10}) {
      COPPICE_ASSIGN_OR_RETURN(const KvNode node, blocks->AddNode(sequence, kPrefixEnd, token));
      second.AddNodeRow(sequence, node, token, need);
    }
    return Run(runner, std::move(second));
  }
  static absl::Status Run(ModelRunner* runner, StepBuilder step) {
    COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
    runner->WaitForHead();
    return runner->Wait().status();
  }

  test::TempDir dir_;
  std::unique_ptr<comm::Communicator> one_ = comm::MakeSingleCommunicator();
  int64_t kv_bytes_ = 1 << 18;
  int64_t calls_until_the_end_ = 0;
};

// Their failure changes nothing: what they free is freed, what they check is asked again.
const std::set<std::string> kHarmless = {"cudaGetLastError", "cudaFree", "cudaFreeHost",
                                         "cublasLtMatmulAlgoCheck"};

TEST_F(FailureTest, EveryCallInTurn) {
  const int64_t begin = fake::CountCalls();
  ASSERT_TRUE(LoadAndRun().ok());
  const int64_t calls = calls_until_the_end_ - begin;
  ASSERT_GT(calls, 200);
  std::set<std::string> failed;
  std::string messages;
  for (const cudaError_t error : {cudaErrorLaunchFailure, cudaErrorMemoryAllocation}) {
    for (int64_t n = 0; n < calls; ++n) {
      fake::FailCall(n, error);
      const absl::Status status = LoadAndRun();
      const std::string call = fake::FailedCall();
      ASSERT_NE(call, "") << "call " << n << " was not made";
      failed.insert(call);
      if (!status.ok()) {
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
      EXPECT_EQ(fake::CountLive().total(), 0) << call << " " << n;
      EXPECT_THAT(fake::Violations(), testing::IsEmpty()) << call << " " << n;
      fake::Recover();
    }
  }
  for (const char* call : {"cudaMalloc", "cudaHostAlloc", "cudaMemcpyAsync", "cudaEventQuery",
                           "cudaEventRecord", "kernel launch", "cublasLtMatmul"})
    EXPECT_TRUE(failed.count(call)) << call;
  for (const char* purpose :
       {"a weight of ", "a gain of ", "the bias of ", "a KV pool of ", "a rotary table of ",
        "a tensor BF16 [16, ", "the workspace of cuBLASLt", "the plan of a step",
        "the work list of attention", "a product of 8 rows by ", "embedding: ",
        "attention of layer 0", "commit of KV", "the logits of a step", "the end of a step"})
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

TEST_F(FailureTest, MemoryThatIsNotThereIsNamedWithWhatIs) {
  fake::Configure({.memory = size_t{48} << 20});
  kv_bytes_ = 64 << 20;
  const absl::Status status = LoadAndRun();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("a KV pool of "));
  EXPECT_THAT(std::string(status.message()),
              testing::ContainsRegex("cudaMalloc of [0-9]+ bytes .6[34] MiB."));
  EXPECT_THAT(std::string(status.message()),
              testing::ContainsRegex("has 1[0-9] MiB free of 48 MiB"));
  EXPECT_EQ(fake::CountLive().total(), 0);
}

}  // namespace
}  // namespace coppice::model
