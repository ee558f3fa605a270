#include "comm/node_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <csignal>
#include <future>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/stop_signal.h"
#include "tests/testing/stopwatch.h"

namespace coppice::comm {
namespace {

using ::testing::HasSubstr;

// Acts as the coordinator, on the test's own thread. Next() waits for a message of the node.
class FakeCoordinator {
 public:
  explicit FakeCoordinator(const std::string& endpoint = "tcp://127.0.0.1:*",
                           std::shared_ptr<const ClusterKey> key = nullptr) {
    ChannelOptions options;
    options.key = std::move(key);
    auto server = ServerChannel::Bind(endpoint, options);
    // A port that was just closed is released in the background.
    for (int i = 0; i < 500 && !server.ok(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      server = ServerChannel::Bind(endpoint, options);
    }
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  const std::string& endpoint() const { return server_->endpoint(); }

  // The next message of the node. Leaves out heartbeats unless `beats` is set.
  std::optional<proto::NodeMessage> Next(bool beats = false, int timeout_ms = 5000) {
    test::Stopwatch watch;
    proto::NodeMessage message;
    while (watch.Seconds() * 1000 < timeout_ms) {
      if (auto peer = server_->Receive(&message)) {
        peer_ = *peer;
        if (beats || !message.has_heartbeat()) return message;
      } else {
        Poll({server_->socket()}, 10);
      }
    }
    return std::nullopt;
  }
  void Acknowledge(bool accepted, const std::string& node_id, const std::string& reason = "") {
    proto::CoordinatorMessage answer;
    answer.mutable_register_ack()->set_accepted(accepted);
    answer.mutable_register_ack()->set_node_id(node_id);
    answer.mutable_register_ack()->set_reason(reason);
    EXPECT_TRUE(server_->Send(peer_, answer).ok());
  }
  void Send(const proto::CoordinatorMessage& message) {
    EXPECT_TRUE(server_->Send(peer_, message).ok());
  }

 private:
  std::unique_ptr<ServerChannel> server_;
  std::string peer_;
};

NodeAgentOptions OptionsFor(const std::string& coordinator) {
  NodeAgentOptions options;
  options.coordinator = coordinator;
  options.registration.set_node_id("replica-0");
  options.registration.set_role(proto::WORKER_LEADER);
  options.heartbeat_interval_s = 0.02;
  options.register_deadline_s = 5;
  return options;
}

// Starts an agent while the fake answers its registration.
std::unique_ptr<NodeAgent> StartAccepted(FakeCoordinator& coordinator,
                                         const NodeAgentOptions& options) {
  absl::StatusOr<std::unique_ptr<NodeAgent>> agent = absl::UnknownError("not started");
  std::thread starter([&] { agent = NodeAgent::Start(options); });
  auto message = coordinator.Next();
  EXPECT_TRUE(message.has_value() && message->has_register_());
  EXPECT_EQ(message->register_().node_id(), "replica-0");
  coordinator.Acknowledge(true, "replica-0b");
  starter.join();
  EXPECT_TRUE(agent.ok()) << agent.status();
  return *std::move(agent);
}

std::unique_ptr<NodeAgent> StartAccepted(FakeCoordinator& coordinator) {
  return StartAccepted(coordinator, OptionsFor(coordinator.endpoint()));
}

std::optional<proto::CoordinatorMessage> WaitFor(NodeAgent& agent) {
  std::optional<proto::CoordinatorMessage> message;
  test::Eventually([&] {
    if ((message = agent.Receive())) return true;
    Poll({agent.socket()}, 10);
    return false;
  });
  return message;
}

TEST(NodeAgentTest, RegistersBeatsAndSaysGoodbye) {
  FakeCoordinator coordinator;
  auto agent = StartAccepted(coordinator);
  auto ack = WaitFor(*agent);  // the owner sees the acceptance, since it holds the draft nodes
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->register_ack().node_id(), "replica-0b");
  proto::NodeStatus status;
  status.set_step(77);
  agent->SetStatus(status);
  uint64_t step = 0, bytes = 0;
  for (int i = 0; i < 50 && step != 77; ++i) {
    auto message = coordinator.Next(/*beats=*/true);
    ASSERT_TRUE(message.has_value() && message->has_heartbeat());
    step = message->heartbeat().status().step();
    // The registration, its answer, and from the second on the heartbeats before.
    const uint64_t now = message->heartbeat().status().counters().control_bytes();
    EXPECT_GT(now, bytes);
    EXPECT_LT(now, 10000u);
    bytes = now;
  }
  EXPECT_EQ(step, 77);
  test::Stopwatch watch;
  agent.reset();
  EXPECT_LT(watch.Seconds(), 2);  // it does not hang
  auto last = coordinator.Next();
  ASSERT_TRUE(last.has_value());
  EXPECT_TRUE(last->has_goodbye());
}

// The owner's thread does nothing. The heartbeats say for how long.
TEST(NodeAgentTest, BeatsTellThatTheOwnerStandsStill) {
  FakeCoordinator coordinator;
  ProgressWatchdog steps;
  NodeAgentOptions options = OptionsFor(coordinator.endpoint());
  options.steps = &steps;
  auto agent = StartAccepted(coordinator, options);
  steps.Wait();
  steps.Begin();
  const auto still_s = [&](double at_least) {
    for (int i = 0; i < 1000; ++i) {
      auto message = coordinator.Next(/*beats=*/true);
      if (!message.has_value() || !message->has_heartbeat()) return -1.0;
      const proto::NodeStatus& status = message->heartbeat().status();
      if (status.still_s() >= at_least && status.working()) return status.still_s();
    }
    return -1.0;
  };
  EXPECT_GE(still_s(0.06), 0.06);
  steps.Stepped();
  for (int i = 0; i < 1000; ++i) {
    auto message = coordinator.Next(/*beats=*/true);
    ASSERT_TRUE(message.has_value() && message->has_heartbeat());
    if (message->heartbeat().status().longest_stall_s() == 0) continue;
    EXPECT_GE(message->heartbeat().status().longest_stall_s(), 0.06);
    break;
  }
}

TEST(NodeAgentTest, AGivenUpNodeLearnsItThoughItsOwnerDoesNotAsk) {
  FakeCoordinator coordinator;
  std::promise<std::string> given_up;
  NodeAgentOptions options = OptionsFor(coordinator.endpoint());
  options.on_given_up = [&](const std::string& reason) { given_up.set_value(reason); };
  auto agent = StartAccepted(coordinator, options);
  proto::CoordinatorMessage message;
  message.mutable_given_up()->set_reason("no step for 10 s");
  coordinator.Send(message);
  std::future<std::string> reason = given_up.get_future();
  const auto told = [&] {
    return reason.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  ASSERT_TRUE(test::Eventually(told));
  EXPECT_EQ(reason.get(), "no step for 10 s");
}

// The coordinator has forgotten it, though the connection has held.
TEST(NodeAgentTest, UnknownToTheCoordinatorItRegistersAgainAtMostOnceASecond) {
  FakeCoordinator coordinator;
  auto agent = StartAccepted(coordinator);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(coordinator.Next(/*beats=*/true)->has_heartbeat());
    proto::CoordinatorMessage message;
    message.mutable_register_again();
    for (int beat = 0; beat < 5; ++beat) coordinator.Send(message);
    const auto registers = coordinator.Next();
    ASSERT_TRUE(registers.has_value());
    ASSERT_TRUE(registers->has_register_());
    EXPECT_EQ(registers->register_().node_id(), "replica-0b");
    coordinator.Acknowledge(true, "replica-0b");
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

// A draft node that was there before the target.
TEST(NodeAgentTest, AnAcceptanceThatIsTakenBackIsTold) {
  FakeCoordinator coordinator;
  std::promise<absl::Status> refused;
  NodeAgentOptions options = OptionsFor(coordinator.endpoint());
  options.on_refused = [&](const absl::Status& refusal) { refused.set_value(refusal); };
  auto agent = StartAccepted(coordinator, options);
  coordinator.Acknowledge(false, "", "vocabulary of 7, want 9");
  std::future<absl::Status> status = refused.get_future();
  ASSERT_EQ(status.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  const absl::Status refusal = status.get();
  EXPECT_EQ(refusal.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("replica-0: the coordinator at tcp://"));
  EXPECT_THAT(std::string(refusal.message()), HasSubstr(" refused: vocabulary of 7, want 9"));
}

TEST(NodeAgentTest, HandsMessagesOverBothWays) {
  FakeCoordinator coordinator;
  auto agent = StartAccepted(coordinator);
  ASSERT_TRUE(WaitFor(*agent).has_value());  // the acceptance
  for (uint64_t i = 0; i < 100; ++i) {
    proto::CoordinatorMessage start;
    start.mutable_start()->set_sequence_id(i);
    coordinator.Send(start);
  }
  for (uint64_t i = 0; i < 100; ++i) {
    auto message = WaitFor(*agent);
    ASSERT_TRUE(message.has_value());
    ASSERT_EQ(message->start().sequence_id(), i);
    proto::NodeMessage progress;
    progress.mutable_progress()->add_updates()->set_sequence_id(i);
    agent->Send(progress);
  }
  EXPECT_FALSE(agent->Receive().has_value());
  for (uint64_t i = 0; i < 100; ++i) {
    auto message = coordinator.Next();
    ASSERT_TRUE(message.has_value());
    ASSERT_EQ(message->progress().updates(0).sequence_id(), i);
  }
}

TEST(NodeAgentTest, RefusalIsFailedPreconditionWithTheReason) {
  FakeCoordinator coordinator;
  absl::Status status;
  std::thread starter(
      [&] { status = NodeAgent::Start(OptionsFor(coordinator.endpoint())).status(); });
  ASSERT_TRUE(coordinator.Next().has_value());
  coordinator.Acknowledge(false, "", "vocabulary of 7, want 9");
  starter.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("vocabulary of 7, want 9"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("replica-0"));
}

TEST(NodeAgentTest, DeadlineNamesTheCoordinator) {
  NodeAgentOptions options = OptionsFor("tcp://127.0.0.1:1");
  options.register_deadline_s = 0.1;
  test::Stopwatch watch;
  const absl::Status status = NodeAgent::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tcp://127.0.0.1:1"));
  EXPECT_LT(watch.Seconds(), 3);
}

// In a process of its own, since a stop cannot be taken back.
TEST(NodeAgentTest, AStopEndsTheWaitForTheCoordinator) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto stopped = [] {
    InstallStopSignals();
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      std::raise(SIGTERM);
    }).detach();
    const absl::Status status = NodeAgent::Start(OptionsFor("tcp://127.0.0.1:1")).status();
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::_Exit(status.code() == absl::StatusCode::kCancelled ? 0 : 1);
  };
  EXPECT_EXIT(stopped(), testing::ExitedWithCode(0),
              "replica-0: stopped while waiting for the coordinator at tcp://127.0.0.1:1");
}

TEST(NodeAgentTest, BadCoordinatorAddressIsInvalidArgument) {
  const absl::Status status = NodeAgent::Start(OptionsFor("localhost:7000")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("localhost:7000"));
}

TEST(NodeAgentTest, RegistersAgainUnderItsGivenNameAfterARestart) {
  const auto log = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  const absl::Cleanup restore = [before = spdlog::default_logger()] {
    spdlog::set_default_logger(before);
  };
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", log));
  auto coordinator = std::make_unique<FakeCoordinator>();
  const std::string endpoint = coordinator->endpoint();
  auto agent = StartAccepted(*coordinator);
  ASSERT_TRUE(WaitFor(*agent).has_value());
  coordinator.reset();
  const auto lost = [&] {
    return absl::StrContains(absl::StrJoin(log->last_formatted(), ""), "lost the coordinator");
  };
  ASSERT_TRUE(test::Eventually(lost));
  // Sent while nobody listens, so it is held back until the node is registered again.
  proto::NodeMessage held;
  held.mutable_progress()->add_updates()->set_sequence_id(5);
  agent->Send(held);
  coordinator = std::make_unique<FakeCoordinator>(endpoint);
  auto message = coordinator->Next();
  ASSERT_TRUE(message.has_value());
  ASSERT_TRUE(message->has_register_());
  EXPECT_EQ(message->register_().node_id(), "replica-0b");
  coordinator->Acknowledge(true, "replica-0b");
  message = coordinator->Next();
  while (message.has_value() && message->has_register_()) message = coordinator->Next();
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->progress().updates(0).sequence_id(), 5);
  EXPECT_TRUE(WaitFor(*agent)->register_ack().accepted());
}

TEST(NodeAgentTest, RefusedLaterItAsksAgain) {
  FakeCoordinator coordinator;
  auto agent = StartAccepted(coordinator);
  coordinator.Acknowledge(false, "", "who are you?");
  auto message = coordinator.Next(/*beats=*/false, /*timeout_ms=*/10000);
  ASSERT_TRUE(message.has_value());
  EXPECT_TRUE(message->has_register_());
}

std::shared_ptr<const ClusterKey> KeyNumber(uint8_t number) {
  KeyBytes secret = {};
  secret.fill(number);
  return std::make_shared<const ClusterKey>(secret);
}

TEST(NodeAgentTest, WithTheKeyOfItsCoordinatorItRegisters) {
  FakeCoordinator coordinator("tcp://127.0.0.1:*", KeyNumber(1));
  NodeAgentOptions options = OptionsFor(coordinator.endpoint());
  options.channel.key = KeyNumber(1);
  auto agent = StartAccepted(coordinator, options);
  agent.reset();
  auto last = coordinator.Next();
  ASSERT_TRUE(last.has_value());
  EXPECT_TRUE(last->has_goodbye());
}

TEST(NodeAgentTest, ADifferentKeyOrNoneEndsTheStartAtOnceWithTheReason) {
  struct Case {
    std::shared_ptr<const ClusterKey> coordinator, node;
    const char* reason;
  };
  const Case cases[] = {{KeyNumber(1), KeyNumber(2), "another cluster key"},
                        {KeyNumber(1), nullptr, "this node has none"},
                        {nullptr, KeyNumber(1), "no cluster key"}};
  for (const Case& one : cases) {
    FakeCoordinator coordinator("tcp://127.0.0.1:*", one.coordinator);
    NodeAgentOptions options = OptionsFor(coordinator.endpoint());
    options.channel.key = one.node;
    options.register_deadline_s = 20;
    test::Stopwatch watch;
    const auto agent = NodeAgent::Start(options);
    EXPECT_EQ(agent.status().code(), absl::StatusCode::kFailedPrecondition) << agent.status();
    const std::string message(agent.status().message());
    EXPECT_THAT(message, HasSubstr(one.reason));
    EXPECT_THAT(message, HasSubstr(coordinator.endpoint()));
    EXPECT_THAT(message, HasSubstr("--cluster_key_file"));
    EXPECT_LT(watch.Seconds(), 10);
    EXPECT_FALSE(coordinator.Next(/*beats=*/true, /*timeout_ms=*/50).has_value());
  }
}

// ZeroMQ itself does not connect again after a handshake without CURVE.
TEST(NodeAgentTest, ARegisteredNodeComesBackAfterAnImpostorOnItsCoordinatorsAddress) {
  auto coordinator = std::make_unique<FakeCoordinator>("tcp://127.0.0.1:*", KeyNumber(1));
  const std::string endpoint = coordinator->endpoint();
  NodeAgentOptions options = OptionsFor(endpoint);
  options.channel.key = KeyNumber(1);
  auto agent = StartAccepted(*coordinator, options);
  coordinator.reset();
  coordinator = std::make_unique<FakeCoordinator>(endpoint);  // without a key
  EXPECT_FALSE(coordinator->Next(/*beats=*/true, /*timeout_ms=*/1500).has_value());
  coordinator.reset();
  coordinator = std::make_unique<FakeCoordinator>(endpoint, KeyNumber(1));
  const auto message = coordinator->Next(/*beats=*/false, /*timeout_ms=*/15000);
  ASSERT_TRUE(message.has_value());
  EXPECT_TRUE(message->has_register_());
}

}  // namespace
}  // namespace coppice::comm
