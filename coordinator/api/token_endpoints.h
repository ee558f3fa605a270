// POST /tokenize, /detokenize and /v1/messages/count_tokens: JSON -> JSON, or the error that names
// the field (docs/api.md 2.5). Called through request/pending_body, by any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "coordinator/api/api.h"

namespace coppice::coordinator {

struct TokenAnswer {
  std::string json;
  IgnoredFields ignored;
};

// max_model_len 0: not known yet. now_unix: the time that a chat template may show.
std::variant<TokenAnswer, ApiError> Tokenize(const std::string& body, const ApiContext& context,
                                             int max_model_len, int64_t now_unix);
// The tokens of the messages of a request of /v1/messages.
std::variant<TokenAnswer, ApiError> CountTokens(const std::string& body, const ApiContext& context,
                                                int64_t now_unix);
std::variant<TokenAnswer, ApiError> Detokenize(const std::string& body, const ApiContext& context);

}  // namespace coppice::coordinator
