// Ranks that sum by one-shot kernels, as processes: how they end. The simulated device notices memory
// that is freed while another process has it open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "base/status.h"
#include "comm/communicator_shared.h"
#include "kernels/cuda/collectives/device_collectives.h"
#include "kernels/cuda/collectives/one_shot_communicator.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "tests/testing/stopwatch.h"

namespace coppice::kernels::cuda {
namespace {

using Collectives = std::unique_ptr<DeviceCollectives>;
constexpr int kBroken = 3;

// The status of a process that joins two ranks and does that.
int RunRank(comm::SharedMemory memory, int rank, const std::function<void(Collectives)>& body) {
  const auto communicator = comm::MakeSharedCommunicator(std::move(memory), rank, 2);
  fake::Configure({.devices = 2});
  const auto run = [&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(UseDevice(rank).status());
    COPPICE_ASSIGN_OR_RETURN(DeviceStream stream, DeviceStream::Create("a test"));
    COPPICE_ASSIGN_OR_RETURN(Collectives sums, JoinOneShot(communicator.get(), &stream, {}));
    body(std::move(sums));
    return absl::OkStatus();
  };
  const absl::Status status = run();
  if (!status.ok()) return 1;
  return fake::Violations().empty() ? 0 : kBroken;
}

// Two ranks, each a process of its own.
class TwoRanks {
 public:
  TwoRanks(const std::function<void(Collectives)>& first,
           const std::function<void(Collectives)>& second) {
    auto memory = comm::SharedMemory::Create(comm::SharedBytes(2)).value();
    for (int rank = 0; rank < 2; ++rank) {
      pids_[rank] = fork();
      if (pids_[rank] == 0) _exit(RunRank(std::move(memory), rank, rank == 0 ? first : second));
    }
  }
  int Wait(int rank) {
    int status = 0;
    waitpid(pids_[rank], &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void Kill(int rank) { kill(pids_[rank], SIGKILL); }

 private:
  pid_t pids_[2];
};

void End(Collectives) {}
void EndLate(Collectives sums) {
  std::this_thread::sleep_for(std::chrono::seconds(1));
  sums.reset();
}
void Die(Collectives) { kill(getpid(), SIGKILL); }
void StandStill(Collectives) { kill(getpid(), SIGSTOP); }

TEST(OneShotRanksTest, MemoryIsFreedWhenAllHaveClosedIt) {
  TwoRanks ranks(End, EndLate);
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

TEST(OneShotRanksTest, ARankThatHasDiedIsNotWaitedFor) {
  TwoRanks ranks(EndLate, Die);
  EXPECT_EQ(ranks.Wait(1), -SIGKILL);
  test::Stopwatch watch;
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_LT(watch.Seconds(), 4);
}

// It keeps what it has open, so that is not freed.
TEST(OneShotRanksTest, ARankThatStandsStillIsNotWaitedForForever) {
  TwoRanks ranks(End, StandStill);
  EXPECT_EQ(ranks.Wait(0), 0);
  ranks.Kill(1);
  EXPECT_EQ(ranks.Wait(1), -SIGKILL);
}

}  // namespace
}  // namespace coppice::kernels::cuda
