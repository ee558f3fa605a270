// Reads the format that a request asks for. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "base/output_format.h"
#include "grammar/automaton.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// InvalidArgument says what is wrong and where.
absl::StatusOr<Grammar> ReadFormat(const FormatSpec& spec);
absl::StatusOr<Automaton> CompileFormat(const FormatSpec& spec);

}  // namespace coppice::grammar
