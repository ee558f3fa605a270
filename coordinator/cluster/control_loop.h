// The thread that owns the control channel: hands messages of nodes to a callback and sends what is
// queued. Bridges to the event loop; knows no meaning of a message. Send from any thread.
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
  virtual ~ControlLoop() = default;  // sends what is queued, ends the thread
  virtual void Send(const std::string& peer, proto::CoordinatorMessage message) = 0;
  virtual const std::string& endpoint() const = 0;
};

}  // namespace coppice::coordinator
