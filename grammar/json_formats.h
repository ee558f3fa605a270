// The strings that "format" of a JSON schema asks for. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// Whether the format is known: date, time, date-time (RFC 3339, no leap seconds), duration (ISO 8601,
// no fractions), uuid, uuid1 to uuid8, email (ASCII names without quotes), hostname (ASCII), ipv4,
// ipv6, uri (with :// and a host), byte (base64), base64, base64url. Other formats are annotations.
bool IsStringFormat(absl::string_view name);

// The characters between the quotes. InvalidArgument: the format is not known.
absl::StatusOr<Grammar> StringFormat(absl::string_view name);

}  // namespace coppice::grammar
