// The names of fields in requests that are read as chat completions: where an error or an ignored
// field is in the client's own request. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/api/answer_form.h"
#include "coordinator/http/api_error.h"

namespace coppice::coordinator {

// Beginnings of paths: of a chat completion, and of the client's request.
using FieldPlaces = std::vector<std::pair<std::string, std::string>>;

// The path with the longest beginning that is among the places replaced, else the path itself.
std::string ClientPath(const FieldPlaces& places, absl::string_view path);
// The same for fields that have another name in every request of this form.
std::string ClientPath(AnswerForm form, absl::string_view path);

// The error with the client's path in `param` and at the beginning of its message.
ApiError WithPath(std::string path, ApiError error);
ApiError ForClient(AnswerForm form, ApiError error);

}  // namespace coppice::coordinator
