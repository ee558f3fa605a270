#include "loadgen/base_url.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace coppice::loadgen {

std::string BaseUrl::HostHeader() const {
  const bool v6 = host.find(':') != std::string::npos;
  return absl::StrCat(v6 ? "[" : "", host, v6 ? "]" : "", ":", port);
}

std::string BaseUrl::Text() const {
  return absl::StrCat(tls ? "https://" : "http://", HostHeader(), path);
}

absl::StatusOr<BaseUrl> ParseBaseUrl(const std::string& url) {
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("--base_url: ", why, ", got '", url, "'"));
  };
  BaseUrl result;
  result.tls = absl::StartsWith(url, "https://");
  const absl::string_view scheme = result.tls ? "https://" : "http://";
  if (!absl::StartsWith(url, scheme)) return refuse("expected http[s]://host[:port][/path]");
  std::string rest = url.substr(scheme.size());
  const size_t slash = rest.find('/');
  if (slash != std::string::npos) {
    result.path = rest.substr(slash);
    rest.resize(slash);
    while (!result.path.empty() && result.path.back() == '/') result.path.pop_back();
  }
  if (!rest.empty() && rest[0] == '[') {
    const size_t end = rest.find(']');
    if (end == std::string::npos) return refuse("expected ] after the IPv6 address");
    result.host = rest.substr(1, end - 1);
    rest.erase(0, end + 1);
  } else {
    const size_t colon = rest.find(':');
    result.host = rest.substr(0, colon);
    rest.erase(0, result.host.size());
  }
  int port = result.tls ? 443 : 80;
  if (!rest.empty() &&
      (rest[0] != ':' || !absl::SimpleAtoi(rest.substr(1), &port) || port < 1 || port > 65535)) {
    return refuse("expected a port from 1 to 65535");
  }
  result.port = absl::StrCat(port);
  if (result.host.empty()) return refuse("expected a host");
  return result;
}

}  // namespace coppice::loadgen
