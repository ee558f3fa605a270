// The form of the page for browsers without JavaScript: POST /ask, and the request that it means.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "coordinator/api/api.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

constexpr char kFormType[] = "application/x-www-form-urlencoded";

// Whether a browser sends the form from a page of this server. Other pages could make it ask, too.
// A client that is no browser sends no origin.
bool FromOwnPage(const HttpRequest& request);

// body: `prompt`, `system`, `max_tokens` and `beams` as a browser sends a form; what is empty is
// absent. A chat if the model has a template, else a completion.
std::variant<GenerateRequest, ApiError> ParseAskForm(const std::string& body,
                                                     const std::string& timeout_header,
                                                     const ApiContext& context, int64_t now_unix);

}  // namespace coppice::coordinator
