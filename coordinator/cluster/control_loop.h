// The thread that owns the control channel. Passes messages from nodes to a callback and sends the
// queued ones. It does not interpret messages. Send may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "comm/channel.h"
#include "proto/control.pb.h"

namespace coppice::coordinator {

class ControlLoop {
 public:
  using OnMessage = std::function<void(std::string peer, proto::NodeMessage message)>;
  // on_message is called in the loop's thread.
  static std::unique_ptr<ControlLoop> Start(std::unique_ptr<comm::ServerChannel> channel,
                                            OnMessage on_message);
  virtual ~ControlLoop() = default;  // sends queued messages, then ends the thread
  virtual void Send(const std::string& peer, proto::CoordinatorMessage message) = 0;
  virtual const std::string& endpoint() const = 0;
};

}  // namespace coppice::coordinator
