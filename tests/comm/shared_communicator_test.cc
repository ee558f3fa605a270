#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "comm/communicator_shared.h"
#include "comm/shared_barrier.h"
#include "comm/shared_memory.h"

namespace coppice::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort{50};

SharedMemory MustCreate(int size) {
  auto memory = SharedMemory::Create(SharedBytes(size));
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

// Another mapping of the same memory.
SharedMemory MustOpen(const SharedMemory& memory) {
  auto opened = SharedMemory::Open(getpid(), memory.fd(), memory.size());
  EXPECT_TRUE(opened.ok()) << opened.status();
  return *std::move(opened);
}

// The ranks as threads, each with a mapping of its own.
void RunRanks(int size, const std::function<void(Communicator*)>& run) {
  const SharedMemory memory = MustCreate(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back(
        [&, r] { run(MakeSharedCommunicator(MustOpen(memory), r, size, kShort).get()); });
  }
  for (std::thread& thread : threads) thread.join();
}

// A child process. Made by the main thread. Killed and awaited when it goes out of scope.
class Child {
 public:
  explicit Child(const std::function<void()>& run) : pid_(fork()) {
    COPPICE_CHECK(pid_ >= 0);
    if (pid_ > 0) return;
    run();
    _exit(0);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    Await();
  }
  pid_t pid() const { return pid_; }
  void Await() {
    if (!awaited_) waitpid(pid_, nullptr, 0);
    awaited_ = true;
  }

 private:
  const pid_t pid_;
  bool awaited_ = false;
};

TEST(SharedMemoryTest, AnotherMappingSeesWhatIsWritten) {
  SharedMemory memory = MustCreate(2);
  const SharedMemory other = MustOpen(memory);
  EXPECT_NE(memory.data(), other.data());
  memory.data()[123] = 7;
  EXPECT_EQ(other.data()[123], 7);
}

TEST(SharedMemoryTest, CannotBeOpenedOnceItIsClosedOrWithAnotherSize) {
  SharedMemory memory = MustCreate(2);
  const int fd = memory.fd();
  EXPECT_EQ(SharedMemory::Open(getpid(), fd, memory.size() + 1).status().code(),
            absl::StatusCode::kUnavailable);
  memory.Close();
  EXPECT_EQ(SharedMemory::Open(getpid(), fd, memory.size()).status().code(),
            absl::StatusCode::kUnavailable);
  memory.data()[1] = 1;  // still mapped
}

// Every rank passes many collectives of mixed kinds and sizes, so that ranks run ahead of each
// other and buffers are used again.
TEST(SharedCommunicatorTest, MixedCollectivesKeepTheirValuesApart) {
  RunRanks(3, [](Communicator* ranks) {
    for (int round = 0; round < 300; ++round) {
      const size_t count = round % 7 == 0 ? 5000 : 1 + round % 5;  // in one step and in two
      std::vector<float> data(count, static_cast<float>(round + ranks->rank()));
      ASSERT_TRUE(ranks->AllReduceSum(absl::MakeSpan(data)).ok());
      for (const float value : data) ASSERT_EQ(value, 3.0f * round + 3);
      const std::vector<float> mine(1 + round % 3, static_cast<float>(10 * round + ranks->rank()));
      std::vector<float> all(ranks->rank() == 0 ? 3 * mine.size() : 0);
      ASSERT_TRUE(ranks->Gather(mine, absl::MakeSpan(all)).ok());
      for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], 10 * round + i / mine.size());
    }
  });
}

TEST(SharedCommunicatorTest, ValuesLargerThanABufferAreCarriedInPieces) {
  RunRanks(2, [](Communicator* ranks) {
    std::vector<float> mine(100001), all(ranks->rank() == 0 ? 2 * mine.size() : 0);
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>(2 * i + ranks->rank());
    ASSERT_TRUE(ranks->Gather(mine, absl::MakeSpan(all)).ok());
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(all[i], static_cast<float>(2 * (i % mine.size()) + i / mine.size()));
    std::string text = ranks->rank() == 0 ? std::string(700001, 'x') + "end" : "";
    ASSERT_TRUE(ranks->Broadcast(&text).ok());
    EXPECT_EQ(text, std::string(700001, 'x') + "end");
  });
}

TEST(SharedCommunicatorTest, AnotherSizeOrAnotherCollectiveIsAnErrorOnBothRanks) {
  RunRanks(2, [](Communicator* ranks) {
    std::vector<float> data(ranks->rank() == 0 ? 3 : 4);
    const absl::Status status = ranks->AllReduceSum(absl::MakeSpan(data));
    EXPECT_EQ(status.message(),
              ranks->rank() == 0
                  ? "rank 0 of 2: a sum of 3 values meets a sum of 4 values on rank 1"
                  : "rank 1 of 2: a sum of 4 values meets a sum of 3 values on rank 0");
    EXPECT_EQ(ranks->Barrier(), status);  // nothing works after it
  });
  RunRanks(2, [](Communicator* ranks) {
    float value = 0;
    const absl::Status status =
        ranks->rank() == 0 ? ranks->Barrier() : ranks->AllReduceSum(absl::MakeSpan(&value, 1));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_TRUE(absl::StrContains(
        status.message(), ranks->rank() == 0 ? "a barrier of 0 values meets a sum of 1 values"
                                             : "a sum of 1 values meets a barrier"))
        << status;
  });
}

TEST(SharedCommunicatorTest, ARankThatLeavesEndsTheWaitOfTheOthers) {
  RunRanks(3, [](Communicator* ranks) {
    EXPECT_TRUE(ranks->Barrier().ok());
    if (ranks->rank() == 2) return;
    float value = 1;
    const absl::Status status = ranks->AllReduceSum(absl::MakeSpan(&value, 1));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(absl::StrContains(status.message(), "rank 2 (pid ")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "has left its replica")) << status;
  });
}

// A collective that a rank came to before it left is whole.
TEST(SharedCommunicatorTest, ARankMayLeaveRightAfterItsLastCollective) {
  for (int i = 0; i < 50; ++i)
    RunRanks(2, [](Communicator* ranks) { EXPECT_TRUE(ranks->Barrier().ok()); });
}

TEST(SharedCommunicatorTest, AKilledRankEndsTheWaitOfTheOthers) {
  const SharedMemory memory = MustCreate(2);
  Child child([&] {
    const auto ranks = MakeSharedCommunicator(MustOpen(memory), 1, 2);
    if (ranks->Barrier().ok()) pause();
  });
  const auto ranks = MakeSharedCommunicator(MustOpen(memory), 0, 2, kShort);
  ASSERT_TRUE(ranks->Barrier().ok());
  kill(child.pid(), SIGKILL);  // it stays a zombie meanwhile: nobody has awaited it
  const absl::Status status = ranks->Barrier();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "rank 0 of 2: a barrier of 0 values: rank 1 (pid " +
                                  std::to_string(child.pid()) + ") has ended");
}

TEST(SharedCommunicatorTest, AStoppedRankIsWaitedForUntilItGoesOn) {
  const SharedMemory memory = MustCreate(2);
  Child child([&] {
    const auto ranks = MakeSharedCommunicator(MustOpen(memory), 1, 2);
    if (!ranks->Barrier().ok()) _exit(1);
    raise(SIGSTOP);
    _exit(ranks->Barrier().ok() ? 0 : 1);
  });
  const auto ranks = MakeSharedCommunicator(MustOpen(memory), 0, 2, milliseconds(0));
  ASSERT_TRUE(ranks->Barrier().ok());
  int state = 0;
  ASSERT_EQ(waitpid(child.pid(), &state, WUNTRACED), child.pid());
  ASSERT_TRUE(WIFSTOPPED(state));
  std::atomic<bool> passed = false;
  std::thread waiter([&] { passed = ranks->Barrier().ok(); });
  auto* posts = reinterpret_cast<BarrierSlot*>(memory.data());
  while (posts[1].sleepers == 0) std::this_thread::yield();  // it sleeps and does not spin
  EXPECT_FALSE(passed);
  kill(child.pid(), SIGCONT);
  waiter.join();
  EXPECT_TRUE(passed);
}

// With many more ranks than cores they sleep and wake each other: nobody waits for a timer.
TEST(SharedCommunicatorTest, ManyRanksPassManyCollectives) {
  RunRanks(16, [](Communicator* ranks) {
    for (int i = 0; i < 100; ++i) {
      std::vector<float> data(3000, 1.0f);
      ASSERT_TRUE(ranks->AllReduceSum(absl::MakeSpan(data)).ok());
      ASSERT_EQ(data[2999], 16.0f);
    }
  });
}

}  // namespace
}  // namespace coppice::comm
