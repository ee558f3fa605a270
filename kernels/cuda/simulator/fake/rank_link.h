// How the ranks of the fake NCCL reach each other, as threads or as processes: messages over
// sockets of this machine that have a name and no file, so that nothing of them outlives the
// processes. No call waits. Used under the lock of the device state.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace coppice::kernels::cuda::fake {

class RankLink {
 public:
  // A socket for this name that links can be made to, or -1.
  static int Listen(const std::string& name);
  // nullptr: nobody has connected by now.
  static std::unique_ptr<RankLink> Accept(int listener);
  // nullptr: nobody listens.
  static std::unique_ptr<RankLink> Connect(const std::string& name);
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;
  ~RankLink();

  void Send(const std::string& message);
  // The next message, if all of it has arrived.
  bool Take(std::string* message);
  // Moves what can be moved now.
  void Pump();
  bool sent() const { return out_.empty(); }  // everything is sent
  // The other end is gone. Messages that it sent before can still be taken.
  bool closed() const { return closed_; }

 private:
  explicit RankLink(int socket) : socket_(socket) {}

  const int socket_;
  std::string in_, out_;
  bool closed_ = false;
};

}  // namespace coppice::kernels::cuda::fake
