#include "comm/node_agent.h"

#include <zmq.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "comm/zmq_context.h"
#include "spdlog/spdlog.h"

namespace coppice::comm {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

SteadyTime Now() { return std::chrono::steady_clock::now(); }
std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

constexpr size_t kMostHeld =
    10000;  // messages kept while there is no coordinator; beyond that the oldest are dropped
constexpr double kRegisterAgainS = 1.0;  // an unanswered Register is repeated after this time
constexpr double kRegisterUnheardS =
    5.0;  // the same while there is no connection: the message waits in the socket
constexpr int kGoodbyeLingerMs = 100;
constexpr double kLongestGapBeats = 4;  // after a longer gap the process itself did not run

// Reports when a client's connection is made and lost.
class ConnectionMonitor {
 public:
  explicit ConnectionMonitor(void* watched) : socket_(ZMQ_PAIR), watched_(watched) {
    static std::atomic<uint64_t> number = 0;
    const std::string name = absl::StrCat("inproc://monitor-", number++);
    COPPICE_CHECK(zmq_socket_monitor(watched, name.c_str(),
                                     ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) == 0);
    COPPICE_CHECK(zmq_connect(socket_.get(), name.c_str()) == 0);
  }
  ~ConnectionMonitor() { zmq_socket_monitor(watched_, nullptr, 0); }

  Pollable socket() { return {.zmq = socket_.get()}; }

  // Calls on_event(connected) for every event that is waiting.
  template <typename OnEvent>
  void Drain(OnEvent on_event) {
    uint8_t event[6];
    while (zmq_recv(socket_.get(), event, sizeof(event), ZMQ_DONTWAIT) == sizeof(event)) {
      char address[256];
      zmq_recv(socket_.get(), address, sizeof(address), ZMQ_DONTWAIT);  // the second part
      uint16_t kind;
      std::memcpy(&kind, event, sizeof(kind));
      on_event(kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
    }
  }

 private:
  ZmqSocket socket_;
  void* watched_;
};

class ZmqNodeAgent final : public NodeAgent {
 public:
  explicit ZmqNodeAgent(const NodeAgentOptions& options)
      : options_(options), to_agent_(Waker::Create()), to_owner_(Waker::Create()) {}

  ~ZmqNodeAgent() override {
    stopping_ = true;
    to_agent_->Notify();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Register() {
    ChannelOptions channel_options;
    channel_options.linger_ms = kGoodbyeLingerMs;
    auto channel = ClientChannel::Connect(options_.coordinator, channel_options);
    if (!channel.ok()) return channel.status();
    channel_ = *std::move(channel);
    if (channel_->socket().zmq == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("coordinator '", options_.coordinator,
                                                     "': nodes register over ZeroMQ, tcp://"));
    }
    thread_ = std::thread([this] { Run(); });
    std::unique_lock<std::mutex> lock(mutex_);
    const bool answered = answered_.wait_for(lock, Seconds(options_.register_deadline_s),
                                             [this] { return first_ack_.has_value(); });
    if (!answered) {
      return absl::DeadlineExceededError(
          absl::StrCat(Name(), ": the coordinator at ", options_.coordinator,
                       " did not acknowledge within ", options_.register_deadline_s, " s"));
    }
    if (!first_ack_->accepted()) {
      return absl::FailedPreconditionError(absl::StrCat(Name(), ": the coordinator at ",
                                                        options_.coordinator,
                                                        " refused: ", first_ack_->reason()));
    }
    return absl::OkStatus();
  }

  void Send(const proto::NodeMessage& message) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      outgoing_.push_back(message);
      if (outgoing_.size() > kMostHeld) outgoing_.pop_front();
    }
    to_agent_->Notify();
  }

  std::optional<proto::CoordinatorMessage> Receive() override {
    if (!any_incoming_.load(std::memory_order_acquire)) return std::nullopt;
    std::lock_guard<std::mutex> lock(mutex_);
    to_owner_->Drain();  // under the lock, like Notify, so that a notification means a message
    proto::CoordinatorMessage message = std::move(incoming_.front());
    incoming_.pop_front();
    any_incoming_.store(!incoming_.empty(), std::memory_order_release);
    if (!incoming_.empty()) to_owner_->Notify();
    return message;
  }

  Pollable socket() override { return to_owner_->socket(); }

  void SetStatus(const proto::NodeStatus& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
  }

 private:
  std::string Name() const { return absl::StrCat("node ", options_.registration.node_id()); }

  // The agent's thread. Once it runs, nothing else uses channel_.
  void Run() {
    auto monitor = std::make_unique<ConnectionMonitor>(channel_->socket().zmq);
    proto::Register registration = options_.registration;
    SendRegister(registration);
    while (!stopping_) {
      const SteadyTime next = registered_ ? next_beat_ : next_register_;
      const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(next - Now());
      const Pollable sockets[] = {to_agent_->socket(), channel_->socket(), monitor->socket()};
      Poll(sockets, static_cast<int>(std::max<int64_t>(wait.count() + 1, 0)));
      to_agent_->Drain();
      monitor->Drain([&](bool connected) { OnConnection(connected, registration); });
      while (channel_->Receive(&received_)) OnMessage(&registration);
      if (registered_) {
        SendOutgoing();
        if (Now() >= next_beat_) SendBeat();
      } else if (Now() >= next_register_) {
        SendRegister(registration);
      }
    }
    if (registered_) SendOutgoing();
    proto::NodeMessage goodbye;
    goodbye.mutable_goodbye()->set_reason("the node stops");
    (void)channel_->Send(goodbye);
    monitor.reset();
    channel_.reset();
  }

  void SendRegister(const proto::Register& registration) {
    next_register_ = Now() + Seconds(connected_ ? kRegisterAgainS : kRegisterUnheardS);
    proto::NodeMessage message;
    *message.mutable_register_() = registration;
    register_queued_ = !connected_;
    (void)channel_->Send(message);
  }

  void OnConnection(bool connected, const proto::Register& registration) {
    if (!connected) {
      if (registered_) spdlog::warn("{}: lost the coordinator at {}", Name(), options_.coordinator);
      connected_ = registered_ = register_queued_ = false;
      next_register_ = Now() + Seconds(kRegisterAgainS);
      return;
    }
    connected_ = true;
    if (std::exchange(register_queued_, false)) return;  // the queued Register is sent now
    if (!registered_) SendRegister(registration);
  }

  void OnMessage(proto::Register* registration) {
    connected_ = true;  // the monitor's event may come later
    register_queued_ = false;
    if (received_.has_given_up()) {
      if (options_.on_given_up) options_.on_given_up(received_.given_up().reason());
      return;
    }
    const bool ack = received_.has_register_ack();
    if (ack && !OnRegisterAck(registration)) return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      incoming_.push_back(std::move(received_));
      any_incoming_.store(true, std::memory_order_release);
      to_owner_->Notify();
    }
  }

  // Returns true if the owner must see the message: an acceptance lists the draft nodes.
  bool OnRegisterAck(proto::Register* registration) {
    const proto::RegisterAck& ack = received_.register_ack();
    const bool first = !acknowledged_;
    acknowledged_ = true;
    if (ack.accepted()) {
      registered_ = true;
      next_beat_ = Now();
      if (!ack.node_id().empty()) registration->set_node_id(ack.node_id());
    } else {
      if (!first) spdlog::warn("{}: the coordinator refused: {}", Name(), ack.reason());
      registered_ = false;
      next_register_ = Now() + Seconds(kRegisterAgainS);
    }
    if (first) {
      std::lock_guard<std::mutex> lock(mutex_);
      first_ack_ = ack;
      answered_.notify_all();
    }
    return ack.accepted();
  }

  void SendOutgoing() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      leaving_.swap(outgoing_);
    }
    for (; !leaving_.empty(); leaving_.pop_front()) {
      if (absl::Status status = channel_->Send(leaving_.front()); !status.ok()) {
        spdlog::warn("{}: {}", Name(), std::string(status.message()));
      }
    }
  }

  void SendBeat() {
    next_beat_ = Now() + Seconds(options_.heartbeat_interval_s);
    proto::NodeMessage beat;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      *beat.mutable_heartbeat()->mutable_status() = status_;
    }
    if (options_.steps != nullptr) {
      const StepReport report =
          options_.steps->Look(kLongestGapBeats * options_.heartbeat_interval_s);
      proto::NodeStatus* status = beat.mutable_heartbeat()->mutable_status();
      status->set_working(report.working);
      status->set_still_s(report.still_s);
      status->set_longest_still_s(report.longest_still_s);
    }
    (void)channel_->Send(beat);
  }

  const NodeAgentOptions options_;
  std::unique_ptr<Waker> to_agent_, to_owner_;
  std::unique_ptr<ClientChannel> channel_;
  std::atomic<bool> stopping_ = false;

  // Used only by the agent's thread.
  bool connected_ = false, registered_ = false, acknowledged_ = false, register_queued_ = false;
  SteadyTime next_beat_, next_register_;
  proto::CoordinatorMessage received_;
  std::deque<proto::NodeMessage> leaving_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable answered_;
  std::optional<proto::RegisterAck> first_ack_;
  std::deque<proto::NodeMessage> outgoing_;
  std::deque<proto::CoordinatorMessage> incoming_;
  std::atomic<bool> any_incoming_{false};  // saves the owner a system call and the lock
  proto::NodeStatus status_;

  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NodeAgent>> NodeAgent::Start(const NodeAgentOptions& options) {
  auto agent = std::make_unique<ZmqNodeAgent>(options);
  if (absl::Status status = agent->Register(); !status.ok()) return status;
  return agent;
}

}  // namespace coppice::comm
