// Draft forests that the device grows, when calls of the runtime fail and when the KV pool is full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "decoding/method.h"
#include "draft_node/device_forests.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "model/model_runner.h"
#include "tests/kernels/cuda/two_roots.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::draft_node {
namespace {

namespace fake = kernels::cuda::fake;
using testing::HasSubstr;

constexpr int kVocabSize = 611;
constexpr int kDepth = 4;

class DeviceForestsFailureTest : public testing::Test {
 protected:
  DeviceForestsFailureTest() {
    test::TinyLlamaOptions tiny;
    tiny.vocab = kVocabSize;
    tiny.layers = 1;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
    fake::Recover();
    Load();
  }
  ~DeviceForestsFailureTest() override {
    EXPECT_THAT(fake::Violations(), testing::IsEmpty());
    Unload();
    fake::Recover();
  }

  void Load() {
    model::ModelRunnerOptions options;
    options.dir = dir_.path();
    options.backend = "cuda";
    options.kv_bytes = 1 << 18;
    options.threads = 1;
    runner_ = model::ModelRunner::Load(options, one_.get()).value();
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kBeamSampling;
    params.method = decoding::FindMethod("gumbel_coupling");
    params.beam_width = 2;
    params.draft_top_k = 40;
    params.seed = 3;
    session_ =
        std::make_unique<DraftSession>(params, std::vector<TokenId>{9, 4, 7}, runner_->blocks());
    model::StepBuilder prefill = runner_->NewStep();
    ASSERT_TRUE(session_->AppendPrefill(10, &prefill, runner_->commits()).ok());
    ASSERT_TRUE(runner_->Submit(std::move(prefill)).ok());
    ASSERT_TRUE(runner_->Wait().ok());
  }
  void Unload() {
    session_.reset();
    runner_.reset();
  }

  // Grows a forest of `width` nodes a layer below two roots.
  absl::StatusOr<decoding::DraftForest> Grow(int width = 3, int depth = 2) {
    COPPICE_ASSIGN_OR_RETURN(
        const auto builder,
        ForestBuilder::Start(TwoRoots(*session_, width, depth), session_.get(), runner_->blocks()));
    EXPECT_TRUE(builder->GrowsOnDevice(*runner_));
    ForestBuilder* const builders[] = {builder.get()};
    COPPICE_RETURN_IF_ERROR(SubmitForests(builders, runner_.get()));
    runner_->WaitForHead();
    COPPICE_ASSIGN_OR_RETURN(const auto grown, WaitForForests(builders, runner_.get()));
    COPPICE_RETURN_IF_ERROR(grown[0]);
    return builder->Sent();
  }

  test::TempDir dir_;
  std::unique_ptr<comm::Communicator> one_ = comm::MakeSingleCommunicator();
  std::unique_ptr<model::ModelRunner> runner_;
  std::unique_ptr<DraftSession> session_;
};

// The paths of the first layers, each as its tokens from the last one up, then its root.
std::set<std::vector<int32_t>> Paths(const decoding::DraftForest& forest, int layers) {
  std::set<std::vector<int32_t>> paths;
  for (int32_t node = 0; node < forest.size(); ++node) {
    std::vector<int32_t> path;
    forest.AppendPath(NodeId{node}, &path);
    if (static_cast<int>(path.size()) > layers) continue;
    path.push_back(Index(forest.RootOf(NodeId{node})));
    paths.insert(path);
  }
  return paths;
}

// Twice each: levels are launched op by op the first time, and captured and replayed later.
TEST_F(DeviceForestsFailureTest, EveryCallInTurn) {
  for (const int grown_before : {0, 3}) {
    for (int i = 0; i < grown_before; ++i) ASSERT_TRUE(Grow().ok());
    const int64_t begin = fake::CountCalls();
    ASSERT_TRUE(Grow().ok());
    const int64_t calls = fake::CountCalls() - begin;
    ASSERT_GT(calls, 20);
    std::set<std::string> failed;
    int told = 0;
    int polls = 0;  // failed in a row
    for (int64_t n = 0; n<calls; n += polls> 2 ? 20 : 1) {
      Unload();
      fake::Recover();
      Load();
      for (int i = 0; i < grown_before; ++i) ASSERT_TRUE(Grow().ok());
      fake::FailCall(n, cudaErrorLaunchFailure);
      const absl::Status status = Grow().status();
      const std::string call = fake::FailedCall();
      if (call.empty()) continue;  // polls are not always as many
      failed.insert(call);
      polls = call == "cudaEventQuery" ? polls + 1 : 0;
      if (!status.ok()) {
        ++told;
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << call << " " << n;
        EXPECT_THAT(std::string(status.message()),
                    testing::ContainsRegex("(step [0-9]+|draft forests on the device): .+: "))
            << call << " " << n;
        const std::string name = call == "cudaGetLastError" ? "kernel launch" : call;
        EXPECT_THAT(std::string(status.message()), HasSubstr(name)) << n;
      }
      EXPECT_EQ(runner_->blocks()->CheckIntegrity(), absl::OkStatus()) << call << " " << n;
      Unload();
      EXPECT_EQ(fake::CountLive().total(), 0) << call << " " << n;
      EXPECT_THAT(fake::Violations(), testing::IsEmpty()) << call << " " << n;
    }
    fake::Recover();
    Load();
    EXPECT_GT(told, 5);
    for (const char* call : {"cudaMemcpyAsync", "cudaEventRecord"})
      EXPECT_TRUE(failed.count(call)) << call;
    if (grown_before > 0) {
      EXPECT_TRUE(failed.count("cudaGraphLaunch"));
    }
  }
}

// Levels for which the pool has no room are left out. Those before them are the same.
TEST_F(DeviceForestsFailureTest, ThePoolFillsWhileLevelsArePlanned) {
  const decoding::DraftForest whole = Grow(20, kDepth).value();
  ASSERT_EQ(whole.depth(), kDepth);
  std::set<int> depths;
  for (int free = 0; free < 6; ++free) {
    Unload();
    Load();
    model::BlockManager* const blocks = runner_->blocks();
    std::vector<model::SequenceHandle> fillers;  // of one block each
    for (bool full = false; !full;) {
      int cached = 0;
      fillers.push_back(blocks->Open({1, 2, 3}, &cached));
      full = !blocks->AppendPrefix(fillers.back(), {1}).ok();
    }
    for (int i = 0; i <= free; ++i) {
      blocks->Close(fillers.back());
      fillers.pop_back();
    }
    blocks->EndRound();
    const auto forest = Grow(20, kDepth);
    if (forest.ok()) {
      EXPECT_EQ(forest->Validate(kVocabSize), absl::OkStatus()) << free;
      EXPECT_EQ(Paths(*forest, kDepth), Paths(whole, forest->depth())) << free;
      depths.insert(forest->depth());
    } else {
      EXPECT_EQ(forest.status().code(), absl::StatusCode::kResourceExhausted) << forest.status();
      depths.insert(0);
    }
    EXPECT_EQ(blocks->CheckIntegrity(), absl::OkStatus()) << free;
    for (const model::SequenceHandle filler : fillers) blocks->Close(filler);
    session_.reset();
    blocks->EndRound();
    EXPECT_EQ(blocks->counts().used, 0) << free;
  }
  EXPECT_THAT(depths, testing::ElementsAre(0, 1, 2, 3, kDepth));
}

}  // namespace
}  // namespace coppice::draft_node
