// The transports of channel.h: one function for each end of each transport.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "comm/channel.h"

namespace coppice::comm {

absl::StatusOr<std::unique_ptr<ServerChannel>> BindZmq(const std::string& endpoint,
                                                       const ChannelOptions& options);
absl::StatusOr<std::unique_ptr<ClientChannel>> ConnectZmq(const std::string& endpoint,
                                                          const ChannelOptions& options);

inline std::chrono::nanoseconds HandshakeTime(const ChannelOptions& options) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(options.handshake_deadline_s));
}

// endpoint as in channel.h: "direct://host:port".
absl::StatusOr<std::unique_ptr<ServerChannel>> BindDirect(const std::string& endpoint,
                                                          const ChannelOptions& options);
absl::StatusOr<std::unique_ptr<ClientChannel>> ConnectDirect(const std::string& endpoint,
                                                             const ChannelOptions& options);

}  // namespace coppice::comm
