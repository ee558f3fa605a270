// A peer that speaks ZeroMQ but not our frames, for tests.
#pragma once

#include <zmq.h>

#include <string>

#include "comm/frame.h"
#include "comm/zmq_context.h"
#include "google/protobuf/message_lite.h"

namespace coppice {

class RawPeer {
 public:
  explicit RawPeer(const std::string& endpoint) : socket_(ZMQ_DEALER) {
    socket_.SetOption(ZMQ_SNDHWM, 0);  // unlimited
    zmq_connect(socket_.get(), endpoint.c_str());
  }
  void Send(const std::string& part, int flags = 0) {
    zmq_send(socket_.get(), part.data(), part.size(), flags);
  }

 private:
  ZmqSocket socket_;
};

inline std::string GoodFrame(const google::protobuf::MessageLite& message) {
  const std::string body = message.SerializeAsString();
  std::string frame(kFrameHeaderBytes, '\0');
  WriteFrameHeader(FrameKind(message.GetTypeName()), static_cast<uint32_t>(body.size()),
                   reinterpret_cast<uint8_t*>(frame.data()));
  return frame + body;
}

}  // namespace coppice
