// Texts to score, as tokens. Pure functions, but for the reading of the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"
#include "tokenizer/tokenizer.h"

namespace coppice::perplexity {

// Tokens of one window; those behind the first are scored.
using Window = std::vector<TokenId>;

// A file of JSON lines has one text per line, "prompt" and "completion" joined. Any other file has
// texts separated by <|endoftext|>. Each text begins with the tokens that the model expects there,
// and is cut into windows of at most `longest` tokens. Errors name the file and the line.
absl::StatusOr<std::vector<Window>> ReadWindows(const std::string& path, int longest,
                                                const tokenizer::Tokenizer& tokenizer);

}  // namespace coppice::perplexity
