#include "comm/channel.h"

#include "absl/strings/match.h"
#include "comm/tcp_socket.h"
#include "comm/transports.h"

namespace coppice::comm {

absl::StatusOr<std::unique_ptr<ServerChannel>> ServerChannel::Bind(const std::string& endpoint,
                                                                   const ChannelOptions& options) {
  return absl::StartsWith(endpoint, kDirectScheme) ? BindDirect(endpoint, options)
                                                   : BindZmq(endpoint, options);
}

absl::StatusOr<std::unique_ptr<ClientChannel>> ClientChannel::Connect(
    const std::string& endpoint, const ChannelOptions& options) {
  return absl::StartsWith(endpoint, kDirectScheme) ? ConnectDirect(endpoint, options)
                                                   : ConnectZmq(endpoint, options);
}

}  // namespace coppice::comm
