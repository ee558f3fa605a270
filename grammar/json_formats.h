// The strings that "format" of a JSON schema asks for. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// The characters between the quotes. date, time, date-time (RFC 3339, no leap seconds), uuid, email
// (ASCII names without quotes), ipv4. InvalidArgument: another format; the error does not name the
// place.
absl::StatusOr<Part> StringFormat(absl::string_view name);

}  // namespace coppice::grammar
