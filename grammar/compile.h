// Reads the format that a request asks for. Pure.
#pragma once

#include <bitset>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/output_format.h"
#include "grammar/automaton.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// InvalidArgument names the fault and its place. *annotations as for ReadJsonSchema.
absl::StatusOr<Grammar> ReadFormat(const FormatSpec& spec,
                                   std::vector<std::string>* annotations = nullptr);
// writable: bytes that are the whole text of a token (tokenizer::OwnBytes). Texts with other bytes
// are excluded, so that no text gets stuck before its end.
absl::StatusOr<Automaton> CompileFormat(const FormatSpec& spec,
                                        const std::bitset<256>& writable = Automaton::AllBytes(),
                                        std::vector<std::string>* annotations = nullptr);

}  // namespace coppice::grammar
