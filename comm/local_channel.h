// A channel within one process: two queues of serialized messages, for a draft model on a thread of
// its leader's process. Each end belongs to one thread; the ends need no synchronisation.
#pragma once

#include <memory>

#include "comm/channel.h"

namespace coppice::comm {

// Has one peer, named "local". When either end is destroyed or Close is called, the channel is
// closed for good: Send returns Unavailable, the server's TakeGone has the peer once, and the
// client's breaks() is 1.
class LocalServer : public ServerChannel {
 public:
  virtual void Close() = 0;  // any thread; wakes both ends
  virtual bool closed() const = 0;
};

struct LocalChannels {
  std::unique_ptr<LocalServer> server;
  std::unique_ptr<ClientChannel> client;
};

// Of the options, send_high_water and max_message_bytes count.
LocalChannels MakeLocalChannels(const ChannelOptions& options = {});

}  // namespace coppice::comm
