#include "comm/channel.h"

#include "absl/strings/match.h"
#include "base/status.h"
#include "comm/tcp_socket.h"
#include "comm/transports.h"
#include "spdlog/spdlog.h"

namespace coppice::comm {
namespace {

// Whether a bound socket can be reached from this host only. Its endpoint has an address.
bool OnlyThisHost(absl::string_view endpoint) {
  const size_t scheme = endpoint.find("://");
  const absl::string_view host = endpoint.substr(scheme + 3);
  return absl::StartsWith(host, "127.") || absl::StartsWith(host, "[::1]:") ||
         absl::StartsWith(host, "[::ffff:127.") || absl::StartsWith(endpoint, "ipc:") ||
         absl::StartsWith(endpoint, "inproc:");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerChannel>> ServerChannel::Bind(const std::string& endpoint,
                                                                   const ChannelOptions& options) {
  COPPICE_ASSIGN_OR_RETURN(auto channel, absl::StartsWith(endpoint, kDirectScheme)
                                             ? BindDirect(endpoint, options)
                                             : BindZmq(endpoint, options));
  if (options.key == nullptr && !OnlyThisHost(channel->endpoint())) {
    spdlog::warn(
        "{}: no cluster key: whoever can connect may take part, and nothing is encrypted "
        "(--cluster_key_file)",
        channel->endpoint());
  }
  return channel;
}

absl::StatusOr<std::unique_ptr<ClientChannel>> ClientChannel::Connect(
    const std::string& endpoint, const ChannelOptions& options) {
  return absl::StartsWith(endpoint, kDirectScheme) ? ConnectDirect(endpoint, options)
                                                   : ConnectZmq(endpoint, options);
}

}  // namespace coppice::comm
