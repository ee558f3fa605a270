// Reads the format that a request asks for. Pure.
#pragma once

#include <bitset>

#include "absl/status/statusor.h"
#include "base/output_format.h"
#include "grammar/automaton.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// InvalidArgument names the fault and its place.
absl::StatusOr<Grammar> ReadFormat(const FormatSpec& spec);
// writable: bytes that are the whole text of a token (tokenizer::OwnBytes). Texts with other bytes
// are excluded, so that no text gets stuck before its end.
absl::StatusOr<Automaton> CompileFormat(const FormatSpec& spec,
                                        const std::bitset<256>& writable = Automaton::AllBytes());

}  // namespace coppice::grammar
