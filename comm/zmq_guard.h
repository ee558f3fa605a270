// Decides which peers may use the ZeroMQ sockets of a process that listen with a cluster key, and
// logs those that may not. ZeroMQ asks it about every client whose CURVE handshake is right (ZAP,
// https://rfc.zeromq.org/spec/27). That is the second check: to get so far, the client must know
// the listener's public key, which is derived from the cluster's secret and never sent. One thread
// for the process, while there is such a socket.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/channel.h"
#include "comm/cluster_key.h"
#include "comm/zmq_context.h"

namespace coppice::comm {

class ZmqGuard {
 public:
  // Call before the socket is bound: only clients with the key's connector pair are let in. Before
  // the socket is closed, Release it; after that, let the guard go. The socket's thread.
  static std::shared_ptr<ZmqGuard> Protect(ZmqSocket* socket, const ClusterKey& key);
  void Release(ZmqSocket* socket);
  // For a socket that connects: it takes part only where the listener has the same key.
  static void Equip(ZmqSocket* socket, const ClusterKey& key);

  ZmqGuard();
  ~ZmqGuard();

 private:
  static std::shared_ptr<ZmqGuard> Shared();

  struct Watched;
  void Watch(void* socket);
  void Run();
  void Answer();

  ZmqSocket gate_;  // only the thread uses it
  std::unique_ptr<Waker> waker_;
  std::mutex mutex_;  // guards the members below
  std::vector<std::unique_ptr<Watched>> arrivals_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace coppice::comm
