#include "base/host_threads.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace coppice {
namespace {

TEST(HostThreadsTest, SerialRunsJobsInOrderOnTheCaller) {
  HostThreads* serial = HostThreads::Serial();
  ASSERT_NE(serial, nullptr);
  EXPECT_EQ(serial, HostThreads::Serial());
  const std::thread::id caller = std::this_thread::get_id();
  EXPECT_EQ(serial->count(), 1);
  std::vector<int> order;
  serial->RunJobs(5, [&](int job) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(job);
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  serial->RunJobs(0, [&](int job) { order.push_back(job); });
  EXPECT_EQ(order.size(), 5u);
}

TEST(HostThreadsTest, SerialRunsATaskAtOnce) {
  HostThreads* serial = HostThreads::Serial();
  serial->Wait();  // nothing runs, so it returns at once
  int runs = 0;
  for (int i = 1; i <= 3; ++i) {
    serial->Post([&] { ++runs; });
    EXPECT_EQ(runs, i);
  }
  serial->Wait();
  serial->Wait();
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace coppice
