// Jobs beside an event loop: turns of clients, small ones beside large ones, and jobs that are
// skipped.
#include "coordinator/http/parse_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

using ::testing::ElementsAre;

constexpr size_t kSmall = 1000, kLarge = 4 << 20;

class ParsePoolTest : public ::testing::Test {
 protected:
  ~ParsePoolTest() override {
    Open();
    jobs_.reset();
  }
  // A job that waits until the gate is open.
  void PostHeld(const std::string& client, size_t bytes) {
    jobs_->Post(
        {client}, bytes,
        [this] {
          std::unique_lock<std::mutex> lock(mutex_);
          ++held_;
          changed_.notify_all();
          changed_.wait(lock, [this] { return open_; });
        },
        [] {});
  }
  uint64_t Post(const std::string& client, size_t bytes, const std::string& name) {
    return jobs_->Post(
        {client}, bytes,
        [this, name] {
          const std::lock_guard<std::mutex> lock(mutex_);
          worked_.push_back(name);
        },
        [this, name] { ended_.push_back(name); });
  }
  // How many large jobs run at a time.
  static int LargeAtOnce() {
    return std::clamp<int>(std::thread::hardware_concurrency() / 2, 2, 4) - 1;
  }
  void AwaitHeld(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return held_ == count; });
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // Runs the event loop until so many jobs have ended.
  void RunUntil(size_t ended) {
    while (ended_.size() < ended) io_.run_one();
  }

  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::optional<ParsePool> jobs_{&io_};
  std::mutex mutex_;
  std::condition_variable changed_;
  int held_ = 0;
  bool open_ = false;
  std::vector<std::string> worked_, ended_;
};

// Large ones hold every thread that they may. The one that is left never turns to another.
TEST_F(ParsePoolTest, SmallJobsDoNotWaitForLargeOnes) {
  for (int i = 0; i < 40; ++i) PostHeld("a", kLarge);
  AwaitHeld(LargeAtOnce());
  for (size_t i = 1; i <= 20; ++i) {
    Post(i % 2 == 0 ? "a" : "b", kSmall, absl::StrCat(i));
    RunUntil(i);
  }
  EXPECT_FALSE(jobs_->idle());
}

TEST_F(ParsePoolTest, ClientsTakeTurns) {
  const int large = LargeAtOnce();
  for (int i = 0; i < large; ++i) PostHeld("a", kLarge);
  AwaitHeld(large);
  for (int i = 0; i < 5; ++i) Post("a", kLarge, absl::StrCat("a", i));
  Post("b", kLarge, "b");
  Open();
  RunUntil(6);
  const auto at = [this](const std::string& name) {
    return std::find(worked_.begin(), worked_.end(), name) - worked_.begin();
  };
  // a has been served more than b, so b's comes first; several threads may overtake.
  EXPECT_LT(at("b"), large + 1);
}

TEST_F(ParsePoolTest, WhatIsSkippedBeforeItBeginsEndsWithoutWork) {
  const int large = LargeAtOnce();
  for (int i = 0; i < large; ++i) PostHeld("a", kLarge);
  AwaitHeld(large);
  const uint64_t skipped = Post("a", kLarge, "skipped");
  jobs_->Skip(skipped);
  RunUntil(1);
  EXPECT_THAT(ended_, ElementsAre("skipped"));
  EXPECT_TRUE(worked_.empty());
  jobs_->Skip(skipped);  // nothing
  Open();
  Post("a", kLarge, "next");
  RunUntil(2);
  EXPECT_THAT(worked_, ElementsAre("next"));
}

}  // namespace
}  // namespace coppice::coordinator
