// http[s]://host[:port][/path] in parts. Called by main. Pure function.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace coppice::loadgen {

struct BaseUrl {
  bool tls = false;  // https
  std::string host;  // without the brackets of an IPv6 address
  std::string port = "80";
  std::string path;  // without a slash at its end; "" = root

  std::string HostHeader() const;
  std::string Text() const;  // as it was given, without a slash at its end
};

absl::StatusOr<BaseUrl> ParseBaseUrl(const std::string& url);

}  // namespace coppice::loadgen
