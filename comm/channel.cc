#include "comm/channel.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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

absl::Status CheckEndpoint(const std::string& endpoint, bool listen) {
  absl::string_view rest = endpoint;
  if (!absl::ConsumePrefix(&rest, "tcp://") && !absl::ConsumePrefix(&rest, kDirectScheme)) {
    return absl::InvalidArgumentError(
        absl::StrCat("want tcp://host:port or direct://host:port, got '", endpoint, "'"));
  }
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos || colon == 0)
    return absl::InvalidArgumentError(absl::StrCat("want host:port, got '", endpoint, "'"));
  const absl::string_view port = rest.substr(colon + 1);
  int number = 0;
  if (listen && port == "*") return absl::OkStatus();
  if (absl::SimpleAtoi(port, &number) && number >= (listen ? 0 : 1) && number <= 65535)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", endpoint, "' has no port"));
}

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
