// The target and the Host of a request, by RFC 9112 3.2 and RFC 3986. Used by request_parser. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

// The path that a request target names, without its query: "/v1/models" of "/v1/models?all=1" and of
// "http://host:8000/v1/models". Escapes of letters, digits and "-._~" are written as these. "*":
// the whole server (OPTIONS only). "": the server opens no tunnels (CONNECT). nullopt: not a target
// of this method.
std::optional<std::string> TargetPath(absl::string_view method, absl::string_view target);

// The value of a parameter of the target's query, as it is written: "5" of "/a?seconds=5". nullopt:
// it has none of this name.
std::optional<std::string> TargetQueryValue(absl::string_view target, absl::string_view name);

// Whether it is a host with or without a port, or empty.
bool GoodHost(absl::string_view host);

}  // namespace coppice::coordinator
