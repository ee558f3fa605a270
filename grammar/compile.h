// Reads the format that a request asks for. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/output_format.h"
#include "grammar/automaton.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// Bytes of a format's text.
inline constexpr size_t kMostFormatBytes = 256 << 10;

absl::string_view FormatKindName(FormatSpec::Kind kind);  // "regex", "grammar", "json_schema"; ""
absl::StatusOr<FormatSpec::Kind> ParseFormatKind(absl::string_view name);

// InvalidArgument says what is wrong and where.
absl::StatusOr<Grammar> ReadFormat(const FormatSpec& spec);
absl::StatusOr<Automaton> CompileFormat(const FormatSpec& spec);

}  // namespace coppice::grammar
