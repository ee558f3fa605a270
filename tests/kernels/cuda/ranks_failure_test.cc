// Ranks that fail, on the CUDA backend: every call of NCCL in turn, ranks that leave, that never come
// or that stand still. Every rank ends with a message, within its deadline, and leaves nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "kernels/cuda/collectives/device_collectives.h"
#include "kernels/cuda/collectives/nccl_communicator.h"
#include "kernels/cuda/collectives/sized_collectives.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/runtime/cuda_weights.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/device_graph.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "tests/kernels/cuda/ranks_fixture.h"
#include "tests/testing/stopwatch.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;
using kernels::cuda::ChooseCollectives;
using kernels::cuda::RankFacts;
using testing::Each;
using testing::HasSubstr;

class RanksFailureTest : public RanksFixture {
 protected:
  RanksFailureTest() {
    test::TinyLlamaOptions tiny;
    tiny.layers = 1;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
    options_.dir = dir_.path();
    options_.kv_bytes = 1 << 18;
    options_.max_rows = 16;
    options_.collectives.kind = "nccl";
    options_.collectives.start_deadline_s = 1;
    options_.collectives.step_deadline_s = 30;
  }

  std::vector<absl::Status> Run() {
    return RunRanks(2, [](ModelRunner* runner) {
      Greedy greedy;
      return DecodeGreedily(runner, {4, 5, 6, 7, 8}, 3, &greedy);
    });
  }

  const test::TempDir dir_;
};

// ncclCommDestroy, ncclCommAbort and ncclMemFree free what they are given, whatever they return.
// Parting fails after all has been done.
const std::set<std::string> kHarmless = {"ncclCommDestroy", "ncclCommFinalize", "ncclMemFree",
                                         "ncclCommWindowDeregister"};
// Without windows ranks sum elsewhere, and without graphs of sums one by one. Sum 1 of a rank is the
// one that is tried in a graph; 2 and 4 are the first in a window each, 3 and 5 those in graphs.
bool IsTried(const std::string& call, int64_t nth) {
  return call == "ncclMemAlloc" || call == "ncclCommWindowRegister" ||
         (call == "ncclAllReduce" && nth >= 1 && nth <= 5);
}

TEST_F(RanksFailureTest, EveryCallInTurn) {
  EXPECT_THAT(Run(), Each(absl::OkStatus()));
  const int64_t files = CountOpenFiles();
  std::set<std::string> seen;
  for (const int rank : {0, 1}) {
    fake::RecoverNccl();
    EXPECT_THAT(Run(), Each(absl::OkStatus()));
    const std::map<std::string, int64_t> calls = fake::NcclCalls(rank);
    for (const auto& [call, count] : calls) {
      seen.insert(call);
      // Those that ask are too many, and how many they are is not the same each time.
      const bool asks = call == "ncclCommGetAsyncError";
      for (int64_t nth = 0; nth < count; nth += asks ? count / 5 + 1 : 1) {
        for (const bool later : {false, true}) {
          if (asks && later) continue;
          fake::RecoverNccl();
          fake::FailNccl({call, rank, nth, ncclSystemError, later});
          const std::vector<absl::Status> ends = Run();
          if (asks && !fake::NcclFailed()) continue;
          SCOPED_TRACE(absl::StrCat(call, " ", nth, " of rank ", rank, later ? ", later" : ""));
          ASSERT_TRUE(fake::NcclFailed());
          EXPECT_EQ(fake::CountLive().total(), 0);
          fake::RecoverNccl();  // an id that rank 0 made and could not use
          EXPECT_EQ(CountOpenFiles(), files);
          if (kHarmless.count(call) || (asks && ends[rank].ok())) continue;
          if (IsTried(call, nth)) {
            EXPECT_THAT(ends, Each(absl::OkStatus()));
            continue;
          }
          EXPECT_FALSE(ends[rank].ok());
          EXPECT_TRUE(asks || !ends[1 - rank].ok());  // who asks last fails alone
          if (call == "ncclGetVersion" || later) continue;
          // What it was for, the call, the error.
          EXPECT_THAT(std::string(ends[rank].message()),
                      testing::ContainsRegex(
                          absl::StrCat("(the ranks of a replica join|the first sum over the ranks|"
                                       "a sum over the ranks): .*",
                                       call, ": ncclSystemError: unhandled system error")));
        }
      }
    }
  }
  for (const char* call :
       {"ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError",
        "ncclAllReduce", "ncclCommFinalize", "ncclCommDestroy", "ncclMemAlloc", "ncclMemFree",
        "ncclCommWindowRegister", "ncclCommWindowDeregister"})
    EXPECT_TRUE(seen.count(call)) << call;
}

TEST_F(RanksFailureTest, ACollectiveThatFailsLaterIsToldToAll) {
  fake::FailNccl({"ncclAllReduce", 1, 9, ncclInternalError, /*later=*/true});
  const std::vector<absl::Status> ends = Run();
  EXPECT_THAT(ends[1].message(), HasSubstr("step 2: a sum over the ranks: rank 1 of 2: "
                                           "ncclAllReduce: ncclInternalError"));
  EXPECT_THAT(ends[0].message(), HasSubstr("ncclRemoteError"));
}

TEST_F(RanksFailureTest, ARankThatNeverComesIsNamed) {
  fake::FailNccl({"ncclCommInitRankConfig", 1, 0, ncclSystemError});
  const std::vector<absl::Status> ends = Run();
  EXPECT_EQ(ends[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(ends[0].message(),
              HasSubstr("the ranks of a replica join: rank 0 of 2: ncclCommInitRankConfig: not "
                        "within its deadline; it waits for rank 1"));
  EXPECT_EQ(fake::CountLive().total(), 0);
}

// It leaves between two steps: the others find it gone in the next.
TEST_F(RanksFailureTest, ARankThatLeaves) {
  before_plan_ = [](int, const StepPlan& plan) {
    return plan.step < 3 ? absl::OkStatus() : absl::CancelledError("leaves");
  };
  const std::vector<absl::Status> ends = Run();
  EXPECT_EQ(ends[1].message(), "leaves");
  EXPECT_FALSE(ends[0].ok());
  EXPECT_EQ(fake::CountLive().total(), 0);
}

TEST_F(RanksFailureTest, ARankThatStandsStill) {
  options_.collectives.step_deadline_s = 3;
  std::atomic<bool> left = false;
  std::atomic<int> hangs = 0;
  options_.collectives.on_hang = [&](const absl::Status&) { ++hangs; };
  before_plan_ = [&](int, const StepPlan& plan) -> absl::Status {
    while (plan.step == 2 && !left) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return plan.step < 2 ? absl::OkStatus() : absl::CancelledError("leaves");
  };
  test::Stopwatch watch;
  const std::vector<absl::Status> ends = RunRanks(2, [&](ModelRunner* runner) {
    Greedy greedy;
    const absl::Status status = DecodeGreedily(runner, {4, 5, 6, 7, 8}, 3, &greedy);
    left = true;
    return status;
  });
  EXPECT_EQ(ends[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ends[0].message(),
            "step 2: the ranks have not ended it within 3.0 s (--step_deadline)");
  EXPECT_EQ(hangs, 0);  // the thread came back
  EXPECT_LT(watch.Seconds(), 20);
  EXPECT_EQ(fake::CountLive().total(), 0);
}

// Nobody can free a thread that waits in the communicator of the host. Whoever runs the rank is told.
TEST_F(RanksFailureTest, ARankThatStandsStillIsToldWhereNothingCanBeAborted) {
  options_.collectives.kind = "host";
  options_.collectives.step_deadline_s = 3;
  std::atomic<bool> hung = false;
  std::string message;
  options_.collectives.on_hang = [&](const absl::Status& status) {
    message = std::string(status.message());
    hung = true;  // in a program, the process ends here
  };
  before_plan_ = [&](int, const StepPlan& plan) -> absl::Status {
    while (plan.step == 2 && !hung) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return plan.step < 2 ? absl::OkStatus() : absl::CancelledError("leaves");
  };
  const std::vector<absl::Status> ends = Run();
  EXPECT_TRUE(hung);
  EXPECT_EQ(message, "step 2: the ranks have not ended it within 3.0 s (--step_deadline)");
  EXPECT_FALSE(ends[0].ok());
  EXPECT_EQ(fake::CountLive().total(), 0);
}

// NCCL ends a communicator only when the other ranks of the host have closed what they have open of it.
TEST_F(RanksFailureTest, AnEndThatDoesNotComeIsNotWaitedForForever) {
  fake::NcclFailure stands_still = {"ncclCommDestroy", 1};
  stands_still.late_s = 60;
  fake::FailNccl(stands_still);
  std::vector<absl::Status> ends(2);
  test::Stopwatch watch;
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    const auto run = [&]() -> absl::Status {
      using namespace kernels::cuda;  // NOLINT
      COPPICE_RETURN_IF_ERROR(UseDevice(communicator->rank()).status());
      COPPICE_ASSIGN_OR_RETURN(DeviceStream stream, DeviceStream::Create("a test"));
      return JoinNccl(communicator, &stream, 5).status();
    };
    ends[communicator->rank()] = run();
  });
  EXPECT_THAT(ends, Each(absl::OkStatus()));
  EXPECT_LT(watch.Seconds(), 30);
  EXPECT_TRUE(fake::NcclFailed());
  EXPECT_EQ(fake::CountLive().handles, 1);
  fake::RecoverNccl();
  while (fake::CountLive().handles > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// NCCL ends an aborted communicator only when no graph holds a sum of it, and this thread owns the
// graph.
TEST_F(RanksFailureTest, AnAbortComesBackWhileAGraphHoldsASum) {
  std::vector<absl::Status> ends(2);
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    const auto run = [&]() -> absl::Status {
      using namespace kernels::cuda;  // NOLINT
      COPPICE_RETURN_IF_ERROR(UseDevice(communicator->rank()).status());
      COPPICE_ASSIGN_OR_RETURN(DeviceStream stream, DeviceStream::Create("a test"));
      COPPICE_ASSIGN_OR_RETURN(const auto nccl, JoinNccl(communicator, &stream, 5));
      COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer values, DeviceBuffer::Allocate(64, "a test"));
      COPPICE_ASSIGN_OR_RETURN(const DeviceGraph graph,
                               DeviceGraph::Capture(&stream, "a test", [&] {
                                 return nccl->AllReduceSum(values.floats(), 16, &stream);
                               }));
      COPPICE_RETURN_IF_ERROR(graph.Launch(&stream, "a test"));
      COPPICE_RETURN_IF_ERROR(stream.Synchronize("a test"));
      nccl->Abort(absl::CancelledError("a test"));
      return nccl->Failure();
    };
    ends[communicator->rank()] = run();
  });
  EXPECT_THAT(ends, Each(absl::CancelledError("a test")));
  EXPECT_EQ(fake::CountLive().total(), 0);
}

// NCCL wants a sum to be captured on all ranks or on none; the simulated one notices. The sum that is
// tried at the start is graph 0, those in the windows are graphs 1 and 2, body and head of a step 3
// and 4, the body of a larger one 5. Ranks that join anew without windows try a sum in a graph again.
TEST_F(RanksFailureTest, AGraphThatOneRankHasNoMemoryFor) {
  const auto decode = [&](Greedy* greedy) {
    return RunRanks(2, [&](ModelRunner* runner) {
      COPPICE_RETURN_IF_ERROR(DecodeGreedily(runner, {4, 5, 6, 7, 8}, 5, greedy));
      for (int again = 0; again < 3; ++again)
        COPPICE_RETURN_IF_ERROR(DecodeGreedily(runner, {9, 8, 7, 6, 5, 4, 3, 9}, 2, greedy));
      return absl::OkStatus();
    });
  };
  Greedy want;
  EXPECT_THAT(decode(&want), Each(absl::OkStatus()));
  for (const int64_t graphs : {0, 1, 2, 3, 4, 5}) {
    SCOPED_TRACE(graphs);
    fake::Configure({.devices = 4, .small_device = 1, .graphs_of_small_device = graphs});
    Greedy greedy;
    EXPECT_THAT(decode(&greedy), Each(absl::OkStatus()));
    EXPECT_EQ(greedy.tokens, want.tokens);
    EXPECT_EQ(absl::StrContains(description_, "not in graphs"), graphs < 3) << description_;
    EXPECT_THAT(fake::Violations(), testing::IsEmpty());
    EXPECT_EQ(fake::CountLive().total(), 0);
    fake::Recover();
  }
}

// The thread of the steps aborts, and its graphs hold sums.
TEST_F(RanksFailureTest, AFailureBesideGraphs) {
  const std::vector<absl::Status> ends = RunRanks(2, [](ModelRunner* runner) {
    Greedy greedy;
    COPPICE_RETURN_IF_ERROR(DecodeGreedily(runner, {4, 5, 6, 7, 8}, 4, &greedy));
    fake::FailNccl({"ncclAllReduce", 0, 0, ncclSystemError});
    return DecodeGreedily(runner, {9, 8, 7, 6, 5, 4, 3, 9, 8, 7, 6}, 1, &greedy);
  });
  EXPECT_THAT(ends[0].message(), HasSubstr("ncclAllReduce: ncclSystemError"));
  EXPECT_FALSE(ends[1].ok());
  EXPECT_EQ(fake::CountLive().total(), 0);
}

// Two plans that differ, as of two versions of the program.
TEST_F(RanksFailureTest, RanksThatDoNotDoTheSame) {
  options_.collectives.step_deadline_s = 3;
  before_plan_ = [&](int, const StepPlan& plan) -> absl::Status {
    if (plan.step == 2) const_cast<StepPlan&>(plan) = StepPlan{.step = 2};
    return absl::OkStatus();
  };
  const std::vector<absl::Status> ends = Run();
  EXPECT_FALSE(ends[0].ok());
  EXPECT_THAT(ends[0].message(), HasSubstr("step 2: the ranks have not ended it within"));
}

TEST(ChooseCollectivesTest, OneShotForProcessesOfOneHost) {
  const RankFacts one = {"auto", 22809, {1}, {7}, 100}, two = {"auto", 22809, {2}, {7}, 101};
  EXPECT_TRUE(ChooseCollectives({one, two})->one_shot);
  EXPECT_TRUE(ChooseCollectives({one, two})->nccl);
  RankFacts other = two;
  other.host = {8};
  EXPECT_EQ(ChooseCollectives({one, other})->one_shot_reason, "ranks 0 and 1 are on two hosts");
  EXPECT_TRUE(ChooseCollectives({one, other})->nccl);
  other.device = one.device;  // of the other host
  EXPECT_TRUE(ChooseCollectives({one, other})->nccl);
  other = two;
  other.process = one.process;
  EXPECT_EQ(ChooseCollectives({one, other})->one_shot_reason,
            "ranks 0 and 1 are threads of one process");
  EXPECT_EQ(ChooseCollectives(std::vector<RankFacts>(9, one))->one_shot_reason,
            "9 ranks, at most 8");
  // Who asks for it may have it on a device that is shared.
  other = two;
  other.device = one.device;
  EXPECT_EQ(ChooseCollectives({one, other})->one_shot_reason, "ranks 0 and 1 share a device");
  RankFacts asks = one, other_asks = other;
  asks.asked = other_asks.asked = "oneshot";
  EXPECT_TRUE(ChooseCollectives({asks, other_asks})->one_shot);
  EXPECT_FALSE(ChooseCollectives({asks, other_asks})->nccl);
  other_asks.host = {8};
  EXPECT_EQ(ChooseCollectives({asks, other_asks}).status().message(),
            "--communicator=oneshot: ranks 0 and 1 are on two hosts; --communicator=host works "
            "without it");
  asks.asked = other_asks.asked = "nccl";
  EXPECT_FALSE(ChooseCollectives({asks, other_asks})->one_shot);
}

TEST(ChooseCollectivesTest, ExactRanksNeedRankOrder) {
  RankFacts one = {"auto", 22809, {1}, {7}, 100}, two = {"auto", 22809, {2}, {7}, 101};
  one.exact = true;
  EXPECT_EQ(ChooseCollectives({one, two}).status().message(),
            "--exact: rank 0 was given it, rank 1 was not");
  two.exact = true;
  EXPECT_FALSE(ChooseCollectives({one, two})->nccl);
  EXPECT_TRUE(ChooseCollectives({one, two})->one_shot);
  one.asked = two.asked = "nccl";
  EXPECT_EQ(ChooseCollectives({one, two}).status().message(),
            "--communicator=nccl: NCCL does not sum in rank order, and --exact needs it; "
            "--communicator=host works without it");
}

// Takes a norm into sums of so many floats at most.
struct NormingCollectives : kernels::cuda::DeviceCollectives {
  std::string description() const override { return ""; }
  absl::Status AllReduceSum(float*, int64_t, kernels::cuda::DeviceStream*) override {
    return absl::OkStatus();
  }
  bool CanNorm(int64_t rows, int64_t columns) const override { return rows * columns <= 64; }
  bool only_enqueues() const override { return true; }
  absl::Status Failure() override { return absl::OkStatus(); }
  void Abort(const absl::Status&) override {}
};

// How many ops a sum and a norm that adds it, or something else, are, for so many rows of 8.
size_t CountOps(int rows, bool added_is_summed, float scale = 1,
                kernels::NormKind kind = kernels::NormKind::kRms) {
  NormingCollectives collectives;
  kernels::cuda::CudaOps ops(kernels::cuda::DeviceFacts(), &collectives);
  StepPlan plan;
  ops.Begin(plan, {rows, 0});
  std::vector<float> memory(4 * 16 * 8);
  const auto tensor = [&](int i) {
    return kernels::Tensor{memory.data() + i * 128, kernels::DType::kF32, 16, 8};
  };
  kernels::cuda::CudaWeight gain;
  gain.columns = 8;
  gain.values = kernels::cuda::DeviceBuffer::Allocate(8 * sizeof(float), "a gain").value();
  ops.AllReduce(tensor(0));
  const kernels::Addend addend = {.values = tensor(added_is_summed ? 0 : 2), .scale = scale};
  ops.AddNorm(tensor(1), addend, {&gain, kind, 1e-5f}, tensor(3));
  return ops.Take().size();
}

TEST(SumAndNormTest, AreOneOpWhereTheNormAddsTheSum) {
  EXPECT_EQ(CountOps(8, /*added_is_summed=*/true), 1u);
  EXPECT_EQ(CountOps(8, /*added_is_summed=*/false), 2u);
  EXPECT_EQ(CountOps(16, /*added_is_summed=*/true), 2u);
  EXPECT_EQ(CountOps(8, /*added_is_summed=*/true, /*scale=*/0.5f), 2u);
  EXPECT_EQ(CountOps(8, /*added_is_summed=*/true, 1, kernels::NormKind::kLayer), 2u);
}

TEST(SumChoiceTest, TheFasterOneOfTheNextLargerSize) {
  const kernels::cuda::SumChoice choice(
      {{1024, 9e-6, 5e-6}, {2048, 9e-6, 10e-6}, {4096, 9e-6, 9e-6}});
  EXPECT_TRUE(choice.OneShot(1));
  EXPECT_TRUE(choice.OneShot(1024));
  EXPECT_FALSE(choice.OneShot(1025));
  EXPECT_TRUE(choice.OneShot(2049));
  EXPECT_FALSE(choice.OneShot(4097));
  EXPECT_EQ(choice.description(), "one-shot sums of 4, 16 KiB");
  EXPECT_EQ(kernels::cuda::SumChoice({{1024, 1e-6, 2e-6}}).description(),
            "no one-shot sums: they are slower");
}

TEST(ChooseCollectivesTest, NcclWhereEveryRankHasItAndADevice) {
  const RankFacts one = {"auto", 22809, {1}}, two = {"auto", 22809, {2}};
  EXPECT_TRUE(ChooseCollectives({one, two})->nccl);
  RankFacts other = two;
  other.nccl = 22703;
  EXPECT_FALSE(ChooseCollectives({one, other})->nccl);
  EXPECT_EQ(ChooseCollectives({one, other})->reason, "rank 0 has NCCL 2.28.9, rank 1 has 2.27.3");
  other.nccl = 0;
  EXPECT_EQ(ChooseCollectives({one, other})->reason, "rank 1 has no NCCL");
  EXPECT_EQ(ChooseCollectives({one, two, one})->reason, "ranks 0 and 2 share a device");
  other.asked = "host";
  EXPECT_EQ(ChooseCollectives({one, other}).status().message(),
            "--communicator: rank 0 was given auto, rank 1 host");
  EXPECT_FALSE(ChooseCollectives({other, other})->nccl);
  EXPECT_EQ(ChooseCollectives({other, other})->reason, "");
}

}  // namespace
}  // namespace coppice::model
