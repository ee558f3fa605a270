// An error as the API reports it (docs/api.md 3.1): status, code, JSON path of the field, message.
// Messages never quote prompt or stop text. Value type.
#pragma once

#include <string>

#include "coordinator/http/http.h"

namespace coppice::coordinator {

struct ApiError {
  int status = 400;
  std::string code;  // "invalid_value"
  std::string message;
  std::string param;      // "speculative.draft_width"; "" = null
  int retry_after_s = 0;  // 0 = no Retry-After header
};

// An answer that is not a stream, of the kind that such errors have: JSON or a page.
HttpReply WholeReply(int status, std::string body, ErrorForm form);

// {"error": {message, type, param, code}}, one line. Anthropic's form also has "type": "error", and
// other types. A page says it in words.
std::string ErrorBody(const ApiError& error, ErrorForm form = ErrorForm::kOpenAi);
// With the headers Retry-After and x-should-retry, if docs/api.md 3.1 requires them.
HttpReply ErrorReply(const ApiError& error, ErrorForm form = ErrorForm::kOpenAi);

}  // namespace coppice::coordinator
