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
#include "base/clock.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "comm/zmq_context.h"
#include "spdlog/spdlog.h"

namespace coppice::comm {
namespace {

std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// Messages kept while there is no coordinator; beyond that the oldest are dropped.
constexpr size_t kMostHeld = 10000;
constexpr double kRegisterAgainS = 1.0;  // an unanswered Register is repeated after this time
// Replaces kRegisterAgainS while there is no connection: the message waits in the socket.
constexpr double kRegisterUnheardS = 5.0;
constexpr double kLookForStopS = 0.1;  // no signal wakes the thread that registers
constexpr int kGoodbyeLingerMs = 100;
constexpr double kLongestGapBeats = 4;  // after a longer gap the process itself did not run
constexpr int kMostUnclear = 3;  // handshakes that end without a reason before a node gives up
constexpr int kLogEveryFailures = 30;

// What happened to a client's connection.
struct LinkEvent {
  uint16_t kind;   // ZMQ_EVENT_...
  uint32_t value;  // ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL: ZMQ_PROTOCOL_ERROR_...
  bool made() const { return kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED; }
  bool lost() const { return kind == ZMQ_EVENT_DISCONNECTED; }
  // ZeroMQ does not try again after a handshake that failed for a known reason.
  bool refused() const {
    return !made() && !lost() && kind != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
  }
};

// Why a handshake failed, as far as it is known.
const char* WhyFailed(const LinkEvent& event, bool has_key) {
  if (event.kind == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
      event.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) {
    return has_key ? "it has no cluster key" : "it has a cluster key, and this node has none";
  }
  if (event.kind == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return "it has another cluster key";
  return has_key ? "it has another cluster key, or none"
                 : "it ends the handshake; it may have a cluster key, and this node has none";
}

// Reports when a client's connection is made and lost, and when its handshake fails.
class ConnectionMonitor {
 public:
  // watched: a socket whose events go to `name` (ChannelOptions::monitor).
  ConnectionMonitor(void* watched, const std::string& name) : socket_(ZMQ_PAIR), watched_(watched) {
    COPPICE_CHECK(zmq_connect(socket_.get(), name.c_str()) == 0);
  }
  // A name that no other monitor has.
  static std::string NewName() {
    static std::atomic<uint64_t> number = 0;
    return absl::StrCat("inproc://monitor-", number++);
  }
  ~ConnectionMonitor() { zmq_socket_monitor(watched_, nullptr, 0); }

  Pollable socket() { return {.zmq = socket_.get()}; }

  // Calls on_event(LinkEvent) for every event that is waiting.
  template <typename OnEvent>
  void Drain(OnEvent on_event) {
    uint8_t event[6];
    while (zmq_recv(socket_.get(), event, sizeof(event), ZMQ_DONTWAIT) == sizeof(event)) {
      char address[256];
      // Receives the second part of the message.
      zmq_recv(socket_.get(), address, sizeof(address), ZMQ_DONTWAIT);
      LinkEvent what;
      std::memcpy(&what.kind, event, sizeof(what.kind));
      std::memcpy(&what.value, event + sizeof(what.kind), sizeof(what.value));
      on_event(what);
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
    COPPICE_RETURN_IF_ERROR(Connect());
    thread_ = std::thread([this] { Run(); });
    std::unique_lock<std::mutex> lock(mutex_);
    const auto answered = [this] { return first_ack_ || !keys_.ok(); };
    const SteadyTime deadline = SteadyNow() + Seconds(options_.register_deadline_s);
    while (!StopRequested() && SteadyNow() < deadline) {
      const SteadyTime look = std::min(deadline, SteadyNow() + Seconds(kLookForStopS));
      if (answered_.wait_until(lock, look, answered)) break;
    }
    if (!keys_.ok()) return keys_;
    if (!first_ack_ && StopRequested()) {
      return absl::CancelledError(absl::StrCat(
          Name(), ": stopped while waiting for the coordinator at ", options_.coordinator));
    }
    if (!first_ack_) {
      return absl::DeadlineExceededError(
          absl::StrCat(Name(), ": the coordinator at ", options_.coordinator,
                       " did not acknowledge within ", options_.register_deadline_s, " s"));
    }
    if (!first_ack_->accepted()) {
      return Refusal(first_ack_->reason());
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

  absl::Status Refusal(const std::string& reason) const {
    return absl::FailedPreconditionError(
        absl::StrCat(Name(), ": the coordinator at ", options_.coordinator, " refused: ", reason));
  }

  absl::Status Connect() {
    ChannelOptions channel_options = options_.channel;
    channel_options.linger_ms = kGoodbyeLingerMs;
    channel_options.monitor = ConnectionMonitor::NewName();
    if (channel_ != nullptr) bytes_before_ += BytesOf(*channel_);
    COPPICE_ASSIGN_OR_RETURN(channel_,
                             ClientChannel::Connect(options_.coordinator, channel_options));
    if (void* socket = channel_->socket().zmq; socket != nullptr) {
      monitor_ = std::make_unique<ConnectionMonitor>(socket, channel_options.monitor);
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("coordinator '", options_.coordinator,
                                                   "': nodes register over ZeroMQ, tcp://"));
  }

  static uint64_t BytesOf(const ClientChannel& channel) {
    return channel.counters().sent_bytes + channel.counters().received_bytes;
  }

  // The agent's thread. Once it runs, nothing else uses channel_.
  void Run() {
    proto::Register registration = options_.registration;
    SendRegister(registration);
    while (!stopping_) {
      const SteadyTime next = registered_ ? next_beat_ : next_register_;
      const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(next - SteadyNow());
      const Pollable sockets[] = {to_agent_->socket(), channel_->socket(), monitor_->socket()};
      Poll(sockets, static_cast<int>(std::max<int64_t>(wait.count() + 1, 0)));
      to_agent_->Drain();
      monitor_->Drain([&](LinkEvent event) { OnLink(event, registration); });
      while (channel_->Receive(&received_)) OnMessage(&registration);
      if (registered_) {
        SendOutgoing();
        if (SteadyNow() >= next_beat_) SendBeat();
      } else if (SteadyNow() >= next_register_) {
        if (refused_) {
          monitor_.reset();
          const absl::Status again = Connect();  // connects to an address that was right before
          COPPICE_CHECK_MSG(again.ok(), again.ToString());
          refused_ = false;
        }
        SendRegister(registration);
      }
    }
    if (registered_) SendOutgoing();
    proto::NodeMessage goodbye;
    goodbye.mutable_goodbye()->set_reason("the node stops");
    (void)channel_->Send(goodbye);
    monitor_.reset();
    channel_.reset();
  }

  void SendRegister(const proto::Register& registration) {
    next_register_ = SteadyNow() + Seconds(connected_ ? kRegisterAgainS : kRegisterUnheardS);
    proto::NodeMessage message;
    *message.mutable_register_() = registration;
    register_queued_ = !connected_;
    (void)channel_->Send(message);
  }

  void OnLink(const LinkEvent& event, const proto::Register& registration) {
    if (!event.made() && !event.lost()) return OnFailedHandshake(event);
    if (event.made()) failed_handshakes_ = 0;
    OnConnection(event.made(), registration);
  }

  // A node that has been in the cluster keeps trying: the coordinator may be replaced by one with
  // the right key.
  void OnFailedHandshake(const LinkEvent& event) {
    refused_ |= event.refused();
    next_register_ = std::max(next_register_, SteadyNow() + Seconds(kRegisterAgainS));
    ++failed_handshakes_;
    if (!event.refused() && failed_handshakes_ < kMostUnclear) return;
    const absl::Status reason = absl::FailedPreconditionError(
        absl::StrCat(Name(), ": no handshake with the coordinator at ", options_.coordinator, ": ",
                     WhyFailed(event, options_.channel.key != nullptr), " (--cluster_key_file)"));
    if (acknowledged_ && failed_handshakes_ % kLogEveryFailures == 1) {
      spdlog::warn("{}", std::string(reason.message()));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    keys_ = reason;
    answered_.notify_all();
  }

  void OnConnection(bool connected, const proto::Register& registration) {
    if (!connected) {
      if (registered_) spdlog::warn("{}: lost the coordinator at {}", Name(), options_.coordinator);
      connected_ = registered_ = register_queued_ = false;
      next_register_ = SteadyNow() + Seconds(kRegisterAgainS);
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
    if (received_.has_register_again()) return RegisterSoon();
    const bool ack = received_.has_register_ack();
    if (ack && !OnRegisterAck(registration)) return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      incoming_.push_back(std::move(received_));
      any_incoming_.store(true, std::memory_order_release);
      to_owner_->Notify();
    }
  }

  // At most once a second. The coordinator answers every heartbeat that was on its way.
  void RegisterSoon() {
    if (!registered_) return;
    spdlog::warn("{}: the coordinator does not know it", Name());
    registered_ = false;
    next_register_ = std::min(next_register_, SteadyNow() + Seconds(kRegisterAgainS));
  }

  // Returns true if the owner must see the message: an acceptance lists the draft nodes.
  bool OnRegisterAck(proto::Register* registration) {
    const proto::RegisterAck& ack = received_.register_ack();
    const bool first = !acknowledged_;
    acknowledged_ = true;
    if (ack.accepted()) {
      registered_ = true;
      next_beat_ = SteadyNow();
      if (!ack.node_id().empty()) registration->set_node_id(ack.node_id());
    } else {
      const absl::Status refusal = Refusal(ack.reason());
      if (registered_ && options_.on_refused) options_.on_refused(refusal);
      if (!first) spdlog::warn("{}", std::string(refusal.message()));
      registered_ = false;
      next_register_ = SteadyNow() + Seconds(kRegisterAgainS);
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
    next_beat_ = SteadyNow() + Seconds(options_.heartbeat_interval_s);
    proto::NodeMessage beat;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      *beat.mutable_heartbeat()->mutable_status() = status_;
    }
    beat.mutable_heartbeat()->mutable_status()->mutable_counters()->set_control_bytes(
        bytes_before_ + BytesOf(*channel_));
    if (options_.steps != nullptr) {
      const ProgressReport report =
          options_.steps->Look(kLongestGapBeats * options_.heartbeat_interval_s);
      proto::NodeStatus* status = beat.mutable_heartbeat()->mutable_status();
      status->set_working(report.working);
      status->set_still_s(report.still_s);
      status->set_longest_stall_s(report.longest_stall_s);
    }
    (void)channel_->Send(beat);
  }

  const NodeAgentOptions options_;
  std::unique_ptr<Waker> to_agent_, to_owner_;
  std::unique_ptr<ClientChannel> channel_;
  std::unique_ptr<ConnectionMonitor> monitor_;  // watches channel_
  std::atomic<bool> stopping_ = false;

  // Used only by the agent's thread.
  bool connected_ = false, registered_ = false, acknowledged_ = false, register_queued_ = false;
  bool refused_ = false;       // the channel does not connect any more
  int failed_handshakes_ = 0;  // since the last one that did not fail
  uint64_t bytes_before_ = 0;  // bytes sent and received by the channels before channel_
  SteadyTime next_beat_, next_register_;
  proto::CoordinatorMessage received_;
  std::deque<proto::NodeMessage> leaving_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable answered_;
  std::optional<proto::RegisterAck> first_ack_;
  absl::Status keys_;  // an error if the coordinator does not have this node's cluster key
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
