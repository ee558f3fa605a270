// What the CUDA backend does where NCCL cannot do what only a device can judge: sums in graphs, and the
// abort of a communicator whose sum a graph holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/collectives/nccl_communicator.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "tests/kernels/cuda/ranks_fixture.h"
#include "tests/testing/stopwatch.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;
using testing::Each;
using testing::HasSubstr;

class RanksFallBackTest : public RanksFixture {
 protected:
  RanksFallBackTest() {
    test::TinyLlamaOptions tiny;
    tiny.layers = 1;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
    options_.dir = dir_.path();
    options_.kv_bytes = 1 << 18;
    options_.max_rows = 16;
    options_.collectives.kind = "nccl";
    options_.collectives.start_deadline_s = 5;
    options_.collectives.step_deadline_s = 30;
  }

  const test::TempDir dir_;
};

// At the start one sum is tried in a graph. Where one rank cannot record it, or its replay fails, hangs
// or is wrong, all launch sums one by one, with the same tokens.
TEST_F(RanksFallBackTest, SumsThatCannotBeInAGraphAreLaunchedOneByOne) {
  const auto decode = [&](Greedy* greedy) {
    return RunRanks(2, [&](ModelRunner* runner) {
      return DecodeGreedily(runner, {4, 5, 6, 7, 8}, 6, greedy);
    });
  };
  Greedy want;
  EXPECT_THAT(decode(&want), Each(absl::OkStatus()));
  EXPECT_THAT(description_, testing::Not(HasSubstr("not in graphs")));
  std::vector<fake::NcclFailure> failures(5);
  failures[0].result = ncclInvalidUsage;
  failures[1].later = true;
  failures[2].wrong = true;
  failures[3].result = ncclInProgress;  // it never comes to the stream
  failures[4].result = ncclUnhandledCudaError;
  for (size_t i = 0; i < failures.size(); ++i) {
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(absl::StrCat("failure ", i, " of rank ", rank));
      fake::RecoverNccl();
      failures[i].call = "ncclAllReduce";
      failures[i].rank = rank;
      failures[i].nth = 1;
      fake::FailNccl(failures[i]);
      Greedy greedy;
      EXPECT_THAT(decode(&greedy), Each(absl::OkStatus()));
      EXPECT_TRUE(fake::NcclFailed());
      EXPECT_EQ(greedy.tokens, want.tokens);
      EXPECT_THAT(description_, HasSubstr("not in graphs"));
      for (const int each : {0, 1}) EXPECT_EQ(fake::NcclCalls(each)["ncclCommInitRankConfig"], 2);
      EXPECT_THAT(fake::Violations(), testing::IsEmpty());
      EXPECT_EQ(fake::CountLive().total(), 0);
    }
  }
}

// An abort that does not come back, as where a graph that holds a sum is never gone: the rank ends all
// the same, and says what stays.
TEST_F(RanksFallBackTest, AnAbortThatDoesNotEndIsNotWaitedForForever) {
  fake::NcclFailure stands_still = {"ncclCommAbort", 1};
  stands_still.late_s = 60;
  fake::FailNccl(stands_still);
  std::vector<absl::Status> ends(2);
  test::Stopwatch watch;
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    const auto run = [&]() -> absl::Status {
      using namespace kernels::cuda;  // NOLINT
      COPPICE_RETURN_IF_ERROR(UseDevice(communicator->rank()).status());
      COPPICE_ASSIGN_OR_RETURN(DeviceStream stream, DeviceStream::Create("a test"));
      COPPICE_ASSIGN_OR_RETURN(const auto nccl, JoinNccl(communicator, &stream, 5));
      nccl->Abort(absl::CancelledError("a test"));
      return nccl->Failure();
    };
    ends[communicator->rank()] = run();
  });
  EXPECT_THAT(ends, Each(absl::CancelledError("a test")));
  EXPECT_LT(watch.Seconds(), 30);
  EXPECT_TRUE(fake::NcclFailed());
  EXPECT_EQ(fake::CountLive().handles, 1);
  fake::RecoverNccl();
  while (fake::CountLive().handles > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace coppice::model
