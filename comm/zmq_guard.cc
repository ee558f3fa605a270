#include "comm/zmq_guard.h"

#include <sodium.h>
#include <zmq.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "comm/refusal_log.h"

namespace coppice::comm {
namespace {

constexpr char kGate[] = "inproc://zeromq.zap.01";
constexpr int kMostParts = 16;

std::string Text(const KeyBytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// The domain of a socket: the public key that it admits. Its own end sets it; a peer cannot.
std::string Domain(const ClusterKey& key) {
  return absl::BytesToHexString(Text(key.connector().public_key));
}

// The parts of the next message; empty when none is waiting.
std::vector<std::string> ReceiveParts(void* socket) {
  std::vector<std::string> parts;
  zmq_msg_t part;
  zmq_msg_init(&part);
  do {
    if (zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) < 0) break;
    if (parts.size() < kMostParts) {
      parts.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
    }
  } while (zmq_msg_more(&part));
  zmq_msg_close(&part);
  return parts;
}

std::string WhyRefused(uint16_t event, uint32_t value) {
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return "it has another cluster key";
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
    return "it closed the connection, or did not finish the handshake in time";
  }
  if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) return "it has no cluster key";
  if (value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC) return "it has another cluster key";
  return "it does not speak this protocol";
}

}  // namespace

// The monitor of one socket.
struct ZmqGuard::Watched {
  ZmqSocket events{ZMQ_PAIR};
  RefusalLog refusals;

  // Logs the events that are waiting. False when the socket has been closed.
  bool Drain() {
    for (;;) {
      const std::vector<std::string> parts = ReceiveParts(events.get());
      if (parts.empty()) return true;
      uint16_t event;
      uint32_t value;
      if (parts.size() < 2 || parts[0].size() != sizeof(event) + sizeof(value)) continue;
      std::memcpy(&event, parts[0].data(), sizeof(event));
      std::memcpy(&value, parts[0].data() + sizeof(event), sizeof(value));
      if (event == ZMQ_EVENT_MONITOR_STOPPED) return false;
      refusals.Add(parts[1], "a ZeroMQ client", WhyRefused(event, value));
    }
  }
};

std::shared_ptr<ZmqGuard> ZmqGuard::Shared() {
  static std::mutex mutex;
  static std::weak_ptr<ZmqGuard> shared;
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<ZmqGuard> guard = shared.lock();
  if (guard == nullptr) shared = guard = std::make_shared<ZmqGuard>();
  return guard;
}

std::shared_ptr<ZmqGuard> ZmqGuard::Protect(ZmqSocket* socket, const ClusterKey& key) {
  std::shared_ptr<ZmqGuard> guard = Shared();
  socket->SetOption(ZMQ_CURVE_SERVER, 1);
  socket->SetOption(ZMQ_CURVE_SECRETKEY, Text(key.listener().secret_key));
  socket->SetOption(ZMQ_ZAP_DOMAIN, Domain(key));
  guard->Watch(socket->get());
  return guard;
}

// ZeroMQ sends a last event, and waits until it can send it.
void ZmqGuard::Release(ZmqSocket* socket) { zmq_socket_monitor(socket->get(), nullptr, 0); }

void ZmqGuard::Equip(ZmqSocket* socket, const ClusterKey& key) {
  socket->SetOption(ZMQ_CURVE_SERVERKEY, Text(key.listener().public_key));
  socket->SetOption(ZMQ_CURVE_PUBLICKEY, Text(key.connector().public_key));
  socket->SetOption(ZMQ_CURVE_SECRETKEY, Text(key.connector().secret_key));
}

ZmqGuard::ZmqGuard() : gate_(ZMQ_REP), waker_(Waker::Create()) {
  // The gate of the guard before this one may still be closing.
  for (int i = 0; i < 5000 && zmq_bind(gate_.get(), kGate) != 0; ++i) {
    COPPICE_CHECK_MSG(errno == EADDRINUSE && i < 4999, absl::StrCat(kGate, ": ", errno));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  thread_ = std::thread([this] { Run(); });
}

ZmqGuard::~ZmqGuard() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  waker_->Notify();
  thread_.join();
  zmq_unbind(gate_.get(), kGate);
}

// The monitor's events must be read continuously: when many are queued, ZeroMQ waits until they are
// read.
void ZmqGuard::Watch(void* socket) {
  static std::atomic<uint64_t> number = 0;
  const std::string name = absl::StrCat("inproc://guarded-", number++);
  auto watched = std::make_unique<Watched>();
  COPPICE_CHECK(zmq_socket_monitor(
                    socket, name.c_str(),
                    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_MONITOR_STOPPED) == 0);
  COPPICE_CHECK(zmq_connect(watched->events.get(), name.c_str()) == 0);
  std::lock_guard<std::mutex> lock(mutex_);
  arrivals_.push_back(std::move(watched));
  waker_->Notify();
}

void ZmqGuard::Run() {
  std::vector<std::unique_ptr<Watched>> watched;
  for (;;) {
    waker_->Drain();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) return;
      std::move(arrivals_.begin(), arrivals_.end(), std::back_inserter(watched));
      arrivals_.clear();
    }
    std::vector<Pollable> sockets = {waker_->socket(), {.zmq = gate_.get()}};
    for (const auto& one : watched) sockets.push_back({.zmq = one->events.get()});
    Poll(sockets, -1);
    Answer();
    std::erase_if(watched, [](const auto& one) { return !one->Drain(); });
  }
}

// The request: version, id, domain, address, identity, mechanism, key. The reply: version, id,
// status, reason, user, metadata.
void ZmqGuard::Answer() {
  std::vector<std::string> request = ReceiveParts(gate_.get());
  if (request.empty()) return;
  request.resize(std::max<size_t>(request.size(), 7));
  const std::string& mechanism = request[5];
  const std::string key = absl::BytesToHexString(request[6]);
  const bool admitted = mechanism == "CURVE" && key.size() == 2 * kKeyBytes &&
                        key.size() == request[2].size() &&
                        sodium_memcmp(key.data(), request[2].data(), key.size()) == 0;
  const std::string reply[] = {"1.0", request[1], admitted ? "200" : "400", "", "", ""};
  for (const std::string& part : reply) {
    zmq_send(gate_.get(), part.data(), part.size(),
             ZMQ_DONTWAIT | (&part == std::end(reply) - 1 ? 0 : ZMQ_SNDMORE));
  }
}

}  // namespace coppice::comm
