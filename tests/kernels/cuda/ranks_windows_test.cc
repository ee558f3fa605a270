// What the ranks sum lies in symmetric windows of NCCL, where it has them, and elsewhere where it has
// not or where a rank cannot make one: the same answers, and nothing is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "kernels/cuda/collectives/nccl_api.h"
#include "tests/kernels/cuda/ranks_fixture.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;
using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr char kInWindows[] = "in symmetric windows";

class RanksWindowsTest : public RanksFixture {
 protected:
  RanksWindowsTest() {
    test::TinyLlamaOptions tiny;
    tiny.layers = 1;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
    options_.dir = dir_.path();
    options_.kv_bytes = 1 << 18;
    options_.max_rows = 16;
    options_.collectives.kind = "nccl";
    options_.collectives.start_deadline_s = 30;
  }

  std::vector<TokenId> Decode(int ranks) {
    Greedy greedy;
    const auto ends = RunRanks(ranks, [&](ModelRunner* runner) {
      return DecodeGreedily(runner, {4, 5, 6, 7, 8}, 6, &greedy);
    });
    EXPECT_THAT(ends, Each(absl::OkStatus()));
    EXPECT_EQ(fake::CountLive().total(), 0);
    return greedy.tokens;
  }
  int64_t Calls(int rank, const std::string& call) { return fake::NcclCalls(rank)[call]; }

  const test::TempDir dir_;
};

// The residual stream and the partial sums. Each goes the way it came.
TEST_F(RanksWindowsTest, HoldWhatStepsSum) {
  const std::vector<TokenId> want = Decode(1);
  for (const int ranks : {2, 3}) {
    fake::RecoverNccl();
    EXPECT_EQ(Decode(ranks), want);
    EXPECT_THAT(description_, EndsWith(kInWindows));
    for (int rank = 0; rank < ranks; ++rank) {
      for (const char* call :
           {"ncclMemAlloc", "ncclMemFree", "ncclCommWindowRegister", "ncclCommWindowDeregister"})
        EXPECT_EQ(Calls(rank, call), 2) << call;
      EXPECT_EQ(Calls(rank, "ncclCommInitRankConfig"), 1);
    }
  }
}

TEST_F(RanksWindowsTest, AnOlderLibraryHasNone) {
  const std::vector<TokenId> want = Decode(1);
  fake::SetNcclAbilities({.windows = false});
  EXPECT_EQ(Decode(2), want);
  EXPECT_THAT(description_, AllOf(HasSubstr("NCCL 2."), Not(HasSubstr(kInWindows))));
  EXPECT_EQ(Calls(0, "ncclMemAlloc") + Calls(1, "ncclMemAlloc"), 0);
}

// Devices that do not reach each other's memory: NCCL registers, and gives no window.
TEST_F(RanksWindowsTest, DevicesMayHaveNone) {
  const std::vector<TokenId> want = Decode(1);
  fake::SetNcclAbilities({.symmetric = false});
  EXPECT_EQ(Decode(2), want);
  EXPECT_THAT(description_, AllOf(HasSubstr("NCCL 2."), Not(HasSubstr(kInWindows))));
  EXPECT_EQ(Calls(1, "ncclCommWindowRegister"), 2);
  EXPECT_EQ(Calls(1, "ncclCommWindowDeregister"), 0);
  EXPECT_EQ(Calls(1, "ncclCommInitRankConfig"), 1);
}

// The first or the second window of a rank cannot be made, at once or after a while: none has one,
// and the ranks join anew where the communicator may be spoilt.
TEST_F(RanksWindowsTest, WithoutWindowsWhereOneRankCannotMakeThem) {
  const std::vector<TokenId> want = Decode(1);
  for (const char* call : {"ncclMemAlloc", "ncclCommWindowRegister"}) {
    for (const int64_t nth : {0, 1}) {
      for (const bool later : {false, true}) {
        SCOPED_TRACE(absl::StrCat(call, " ", nth, later ? ", later" : ""));
        const bool registers = std::string(call) == "ncclCommWindowRegister";
        if (later && !registers) continue;
        fake::RecoverNccl();
        fake::FailNccl({call, 1, nth, ncclSystemError, later});
        EXPECT_EQ(Decode(2), want);
        EXPECT_TRUE(fake::NcclFailed());
        EXPECT_THAT(description_, AllOf(HasSubstr("NCCL 2."), Not(HasSubstr(kInWindows))));
        for (const int rank : {0, 1}) {
          EXPECT_EQ(Calls(rank, "ncclCommInitRankConfig"), registers ? 2 : 1);
          EXPECT_EQ(Calls(rank, "ncclCommWindowRegister"), registers ? nth + 1 : nth);
        }
      }
    }
  }
}

// It goes on as if it had a window; the other ranks wait for it in vain, then all go on without.
TEST_F(RanksWindowsTest, WithoutWindowsWhereARankNeverRegisters) {
  options_.collectives.start_deadline_s = 5;
  fake::FailNccl({"ncclCommWindowRegister", 1, 0, ncclInProgress});
  Decode(2);
  EXPECT_THAT(description_, Not(HasSubstr(kInWindows)));
  EXPECT_EQ(Calls(0, "ncclCommInitRankConfig"), 2);
}

// The first sum in a window is checked; one that fails takes the windows with it.
TEST_F(RanksWindowsTest, WithoutWindowsWhereTheFirstSumInOneFails) {
  const std::vector<TokenId> want = Decode(1);
  fake::RecoverNccl();
  fake::FailNccl({"ncclAllReduce", 0, /*nth=*/4, ncclInternalError, /*later=*/true});
  EXPECT_EQ(Decode(2), want);
  EXPECT_TRUE(fake::NcclFailed());
  EXPECT_THAT(description_, Not(HasSubstr(kInWindows)));
}

// A sum in a window that cannot be in a graph takes the windows with it; sums elsewhere are in graphs.
TEST_F(RanksWindowsTest, WithoutWindowsWhereAGraphCannotHoldASumInOne) {
  const std::vector<TokenId> want = Decode(1);
  for (const int64_t nth : {3, 5}) {
    fake::RecoverNccl();
    fake::FailNccl({"ncclAllReduce", 1, nth, ncclInvalidUsage});
    EXPECT_EQ(Decode(2), want);
    EXPECT_TRUE(fake::NcclFailed());
    EXPECT_THAT(description_, AllOf(Not(HasSubstr(kInWindows)), Not(HasSubstr("not in graphs"))));
    for (const int rank : {0, 1}) EXPECT_EQ(Calls(rank, "ncclCommInitRankConfig"), 2);
  }
}

// Only the rank that has it knows. The other one, whose sum is right, follows it.
TEST_F(RanksWindowsTest, WithoutWindowsWhereTheFirstSumInOneIsWrong) {
  const std::vector<TokenId> want = Decode(1);
  for (const int rank : {0, 1}) {
    fake::RecoverNccl();
    fake::FailNccl({.call = "ncclAllReduce", .rank = rank, .nth = 4, .wrong = true});
    EXPECT_EQ(Decode(2), want);
    EXPECT_TRUE(fake::NcclFailed());
    EXPECT_THAT(description_, Not(HasSubstr(kInWindows)));
    for (const int each : {0, 1}) EXPECT_EQ(Calls(each, "ncclCommInitRankConfig"), 2);
  }
}

// ---- What the stand-in notices

class WindowMisuseTest : public testing::Test {
 protected:
  WindowMisuseTest() { fake::Configure({.devices = 1}); }
  ~WindowMisuseTest() override {
    fake::Configure({});
    fake::Recover();
    fake::RecoverNccl();
  }

  ncclResult_t Finish(ncclComm_t comm, ncclResult_t result) {
    for (; result == ncclInProgress; std::this_thread::yield()) {
      if (api_.comm_get_async_error(comm, &result) != ncclSuccess) return ncclInternalError;
    }
    return result;
  }
  ncclComm_t Join() {
    ncclUniqueId id;
    EXPECT_EQ(api_.get_unique_id(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    const ncclResult_t result = api_.comm_init_rank_config(&comm, 1, id, 0, &config);
    EXPECT_EQ(Finish(comm, result), ncclSuccess);
    return comm;
  }
  void* Allocate(size_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(api_.mem_alloc(&data, bytes), ncclSuccess);
    return data;
  }
  ncclWindow_t Register(ncclComm_t comm, void* data, size_t bytes) {
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Finish(comm, api_.comm_window_register(comm, data, bytes, &window,
                                                     NCCL_WIN_COLL_SYMMETRIC)),
              ncclSuccess);
    EXPECT_NE(window, nullptr);
    return window;
  }
  void ExpectViolation(const char* rule) {
    EXPECT_THAT(fake::Violations(), testing::ElementsAre(rule));
  }

  const kernels::cuda::NcclApi& api_ = **kernels::cuda::LoadNccl();
};

TEST_F(WindowMisuseTest, NothingWhereTheOrderIsKept) {
  const ncclComm_t comm = Join();
  void* data = Allocate(1000);
  const ncclWindow_t window = Register(comm, data, 1000);
  EXPECT_EQ(api_.comm_window_deregister(comm, window), ncclSuccess);
  EXPECT_EQ(Finish(comm, api_.comm_finalize(comm)), ncclSuccess);
  EXPECT_EQ(api_.comm_destroy(comm), ncclSuccess);
  EXPECT_EQ(api_.mem_free(data), ncclSuccess);
  EXPECT_THAT(fake::Violations(), testing::IsEmpty());
  EXPECT_EQ(fake::CountLive().total(), 0);
}

// An abort ends the windows, so that their memory may go.
TEST_F(WindowMisuseTest, NothingAfterAnAbort) {
  const ncclComm_t comm = Join();
  void* data = Allocate(1000);
  Register(comm, data, 1000);
  EXPECT_EQ(api_.comm_abort(comm), ncclSuccess);
  EXPECT_EQ(api_.mem_free(data), ncclSuccess);
  EXPECT_THAT(fake::Violations(), testing::IsEmpty());
}

TEST_F(WindowMisuseTest, MemoryBeforeItsWindow) {
  const ncclComm_t comm = Join();
  void* data = Allocate(1000);
  Register(comm, data, 1000);
  api_.mem_free(data);
  ExpectViolation("memory is freed before its window");
  api_.comm_abort(comm);
}

TEST_F(WindowMisuseTest, ACommunicatorBeforeItsWindows) {
  const ncclComm_t comm = Join();
  void* data = Allocate(1000);
  Register(comm, data, 1000);
  EXPECT_EQ(Finish(comm, api_.comm_finalize(comm)), ncclSuccess);
  api_.comm_destroy(comm);
  ExpectViolation("a communicator ends before its windows");
  api_.mem_free(data);
}

TEST_F(WindowMisuseTest, AWindowWhileASumIsQueued) {
  const ncclComm_t comm = Join();
  void* data = Allocate(1000);
  const ncclWindow_t window = Register(comm, data, 1000);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(Finish(comm, api_.all_reduce(data, data, 250, ncclFloat32, ncclSum, comm, stream)),
            ncclSuccess);
  EXPECT_EQ(api_.comm_window_deregister(comm, window), ncclInvalidUsage);
  ExpectViolation("a window is deregistered while work is queued");
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(api_.comm_window_deregister(comm, window), ncclSuccess);
  cudaStreamDestroy(stream);
  api_.comm_abort(comm);
  api_.mem_free(data);
}

TEST_F(WindowMisuseTest, AWindowThatIsGone) {
  const ncclComm_t comm = Join();
  void* data = Allocate(1000);
  const ncclWindow_t window = Register(comm, data, 1000);
  EXPECT_EQ(api_.comm_window_deregister(comm, window), ncclSuccess);
  EXPECT_EQ(api_.comm_window_deregister(comm, window), ncclInvalidUsage);
  ExpectViolation("a window that does not live");
  api_.comm_abort(comm);
  api_.mem_free(data);
}

TEST_F(WindowMisuseTest, MemoryOfTheRuntime) {
  const ncclComm_t comm = Join();
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 1000), cudaSuccess);
  ncclWindow_t window = nullptr;
  EXPECT_EQ(api_.comm_window_register(comm, data, 1000, &window, NCCL_WIN_COLL_SYMMETRIC),
            ncclInvalidUsage);
  ExpectViolation("a window before the call before it was done, or not of NCCL's memory");
  api_.comm_abort(comm);
  cudaFree(data);
}

TEST_F(WindowMisuseTest, MemoryOfNcclThatTheRuntimeFrees) {
  void* data = Allocate(1000);
  EXPECT_NE(cudaFree(data), cudaSuccess);
  ExpectViolation("the runtime frees memory of NCCL");
  api_.mem_free(data);
}

// Two ranks as threads, each in turn: the sizes of a window differ, or one of them sums outside of it.
class TwoRanksMisuseTest : public WindowMisuseTest {
 protected:
  void OnTwoRanks(const std::function<ncclResult_t(int rank, ncclComm_t comm, float* data)>& body) {
    fake::Configure({.devices = 2});
    ncclUniqueId id;
    ASSERT_EQ(api_.get_unique_id(&id), ncclSuccess);
    std::vector<ncclResult_t> results(2);
    const auto run = [&](int rank) {
      cudaSetDevice(rank);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t comm = nullptr;
      const ncclResult_t joined = api_.comm_init_rank_config(&comm, 2, id, rank, &config);
      EXPECT_EQ(Finish(comm, joined), ncclSuccess);
      void* data = Allocate(8192);
      results[rank] = body(rank, comm, static_cast<float*>(data));
      api_.mem_free(data);
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    EXPECT_THAT(results, testing::Contains(ncclInvalidArgument));
    EXPECT_EQ(fake::CountLive().total(), 0);
  }
};

TEST_F(TwoRanksMisuseTest, WindowsOfDifferentSizes) {
  OnTwoRanks([&](int rank, ncclComm_t comm, float* data) {
    ncclWindow_t window = nullptr;
    const ncclResult_t result =
        Finish(comm, api_.comm_window_register(comm, data, rank == 0 ? 8192 : 4096, &window,
                                               NCCL_WIN_COLL_SYMMETRIC));
    api_.comm_abort(comm);
    return result;
  });
  ExpectViolation("windows of different sizes");
}

TEST_F(TwoRanksMisuseTest, OneRankSumsOutsideOfTheWindow) {
  OnTwoRanks([&](int rank, ncclComm_t comm, float* data) {
    Register(comm, data, 4096);
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    float* const values = rank == 0 ? data : data + 1024;
    EXPECT_EQ(Finish(comm, api_.all_reduce(values, values, 16, ncclFloat32, ncclSum, comm, stream)),
              ncclSuccess);
    cudaEvent_t summed = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&summed, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(summed, stream), cudaSuccess);
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess) {
      cudaEventQuery(summed);
      EXPECT_EQ(api_.comm_get_async_error(comm, &result), ncclSuccess);
    }
    api_.comm_abort(comm);  // the sum ends, and the stream may go
    cudaStreamSynchronize(stream);
    cudaEventDestroy(summed);
    cudaStreamDestroy(stream);
    return result;
  });
}

}  // namespace
}  // namespace coppice::model
