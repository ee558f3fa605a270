// Texts of an exact number of tokens, found by asking the server's /tokenize. Called by main before
// the run, for --prompt-form text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace coppice::loadgen {

// The number of tokens of the prompt that this text makes, with what the server adds to it.
using CountTokens = std::function<absl::StatusOr<int>(const std::string& text)>;

// Words of the seed whose count is exactly `tokens`. Fails if the count fails, or if no text of
// this length is found, as when a chat's template alone is longer.
absl::StatusOr<std::string> FitText(int tokens, uint64_t seed, const CountTokens& count);

}  // namespace coppice::loadgen
