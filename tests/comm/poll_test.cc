#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/channel.h"
#include "comm/tcp_socket.h"
#include "tests/comm/channel_ends.h"

namespace coppice::comm {
namespace {

TEST(PollTest, WhatIsReadyAlreadyIsNotWaitedFor) {
  auto waker = Waker::Create();
  auto zmq = BindTo(kZmq.endpoint);
  const Pollable held = {.ready = true};
  std::vector<bool> ready;
  test::Stopwatch watch;
  EXPECT_TRUE(Poll({waker->socket(), held}, 60000, &ready));
  EXPECT_EQ(ready, (std::vector<bool>{false, true}));
  EXPECT_TRUE(Poll({zmq->socket(), held, waker->socket()}, 60000, &ready));
  EXPECT_EQ(ready, (std::vector<bool>{false, true, false}));
  waker->Notify();  // Poll must still look at the others
  EXPECT_TRUE(Poll({waker->socket(), held}, 60000, &ready));
  EXPECT_EQ(ready, (std::vector<bool>{true, true}));
  EXPECT_TRUE(Poll({zmq->socket(), held, waker->socket()}, 60000, &ready));
  EXPECT_EQ(ready, (std::vector<bool>{false, true, true}));
  EXPECT_LT(watch.Seconds(), 30);
}

TEST(PollTest, RoomToWriteIsWaitedForOnlyWhereItIsWanted) {
  auto zmq = BindTo(kZmq.endpoint);
  int fds[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const FileDescriptor near(fds[0]), far(fds[1]);
  const Pollable reading = {.fd = near.get()}, writing = {.fd = near.get(), .writing = true};
  EXPECT_FALSE(Poll({reading}, 0));
  EXPECT_TRUE(Poll({writing}, 0));
  EXPECT_FALSE(Poll({zmq->socket(), reading}, 0));
  EXPECT_TRUE(Poll({zmq->socket(), writing}, 0));
}

TEST(PollTest, ZmqDirectAndWakersAreWaitedForTogether) {
  auto zmq = BindTo(kZmq.endpoint), direct = BindTo(kDirectLocal.endpoint);
  auto waker = Waker::Create();
  auto zmq_client = ConnectTo(*zmq), direct_client = ConnectTo(*direct);
  auto nobody = ConnectTo("direct://127.0.0.1:1");  // between attempts it waits for no event
  Meet(*zmq, *zmq_client);
  Meet(*direct, *direct_client);
  proto::NodeMessage message;
  EXPECT_FALSE(zmq->Receive(&message).has_value());
  EXPECT_FALSE(direct->Receive(&message).has_value());
  const auto wait = [&](int timeout_ms) {
    std::vector<bool> ready;
    EXPECT_FALSE(nobody->Receive(&message));
    Poll({zmq->socket(), waker->socket(), nobody->socket(), direct->socket()}, timeout_ms, &ready);
    return ready;
  };
  EXPECT_EQ(wait(0), (std::vector<bool>{false, false, false, false}));
  ASSERT_TRUE(direct_client->Send(Beat(1)).ok());
  EXPECT_EQ(wait(5000), (std::vector<bool>{false, false, false, true}));
  ASSERT_TRUE(direct->Receive(&message).has_value());
  EXPECT_FALSE(direct->Receive(&message).has_value());
  waker->Notify();
  EXPECT_EQ(wait(5000), (std::vector<bool>{false, true, false, false}));
  waker->Drain();
  ASSERT_TRUE(zmq_client->Send(Beat(2)).ok());
  EXPECT_EQ(wait(5000), (std::vector<bool>{true, false, false, false}));
  ASSERT_TRUE(zmq->Receive(&message).has_value());
  EXPECT_FALSE(zmq->Receive(&message).has_value());
  EXPECT_EQ(wait(0), (std::vector<bool>{false, false, false, false}));
}

double Now() { return SteadyClock().NowSeconds(); }

TEST(PollAwakeTest, WhatIsReadyAlreadyIsNotWaitedFor) {
  auto waker = Waker::Create();
  waker->Notify();
  const Pollable held = {.ready = true};
  const double begin_s = Now();
  EXPECT_TRUE(PollAwake({waker->socket()}, begin_s + 60));
  EXPECT_TRUE(PollAwake({held}, begin_s + 60));
  waker->Drain();
  EXPECT_TRUE(PollAwake({waker->socket(), held}, begin_s + 60));
  EXPECT_LT(Now() - begin_s, 30);
}

TEST(PollAwakeTest, WhenNothingComesItEndsWithItsTime) {
  auto waker = Waker::Create();
  auto zmq = BindTo(kZmq.endpoint);
  for (const double wait_s : {0.0, kStayAwake_s, 0.05}) {
    const double until_s = Now() + wait_s;
    EXPECT_FALSE(PollAwake({waker->socket(), zmq->socket()}, until_s));
    EXPECT_GE(Now(), until_s);
  }
}

TEST(PollAwakeTest, WhenItsTimeIsOverItDoesNotLook) {
  auto waker = Waker::Create();
  waker->Notify();
  EXPECT_FALSE(PollAwake({waker->socket()}, Now() - 1));
  EXPECT_FALSE(PollAwake({waker->socket()}, 0));
  EXPECT_TRUE(Poll({waker->socket()}, 0));  // the notification is still there
}

TEST(PollAwakeTest, SeesWhatAnotherThreadSends) {
  auto waker = Waker::Create();
  for (const Transport& transport : {kZmq, kDirectLocal, kDirectTcp}) {
    SCOPED_TRACE(transport.name);
    auto server = BindTo(transport.endpoint);
    auto client = ConnectTo(*server);
    Meet(*server, *client);
    proto::NodeMessage message;
    EXPECT_FALSE(server->Receive(&message).has_value());
    std::thread sender([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_TRUE(client->Send(Beat(3)).ok());
    });
    EXPECT_TRUE(PollAwake({waker->socket(), server->socket()}, Now() + 30));
    sender.join();
    ASSERT_TRUE(server->Receive(&message).has_value());
    EXPECT_EQ(Step(message), 3u);
  }
}

TEST(PollAwakeTest, SeesANotification) {
  auto waker = Waker::Create();
  for (int round = 0; round < 20; ++round) {
    std::thread notifier([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
      waker->Notify();
    });
    EXPECT_TRUE(PollAwake({waker->socket()}, Now() + 30));
    notifier.join();
    waker->Drain();
  }
}

TEST(WakerTest, WakesAPollFromAnotherThread) {
  auto waker = Waker::Create();
  std::vector<bool> ready;
  EXPECT_FALSE(Poll({waker->socket()}, 0, &ready));
  EXPECT_FALSE(ready[0]);
  std::thread notifier([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    waker->Notify();
  });
  EXPECT_TRUE(Poll({waker->socket()}, 5000, &ready));
  EXPECT_TRUE(ready[0]);
  notifier.join();
  waker->Notify();
  waker->Notify();
  waker->Drain();
  EXPECT_FALSE(Poll({waker->socket()}, 0));
  waker->Notify();
  EXPECT_TRUE(Poll({waker->socket()}, 5000));
}

TEST(WakerTest, NoNotificationIsLostAmongManyThreads) {
  auto waker = Waker::Create();
  std::atomic<int> produced = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        ++produced;
        waker->Notify();
      }
    });
  }
  int seen = 0;
  while (seen < 20000) {
    ASSERT_TRUE(Poll({waker->socket()}, 5000)) << "a wake-up was lost at " << seen;
    waker->Drain();
    seen = produced;
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace coppice::comm
