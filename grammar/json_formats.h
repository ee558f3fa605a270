// The strings that "format" of a JSON schema asks for. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace coppice::grammar {

// Whether the format is served: date, time, date-time (RFC 3339, no leap seconds, from year 1),
// duration (ISO 8601, no fractions), uuid, uuid1 to uuid8, email (ASCII names without quotes),
// name-email, hostname (ASCII), ipv4, ipv6, ipv4network, ipv4interface and the like, uri (with ://
// and a host), byte (base64), base64, base64url. Other formats are annotations.
bool IsStringFormat(absl::string_view name);

// The regular expression that the whole string matches. "": the format is not served. bounded: no
// text is longer than kLongestBounded.
inline constexpr int kLongestBounded = 2000;
std::string FormatExpression(absl::string_view name, bool bounded = false);

}  // namespace coppice::grammar
