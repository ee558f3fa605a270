// Requests and answers as JSON: the lines of a recording. Scores are hexadecimal floats, so equal
// text means equal bits. Fields of a request with their default value are left out. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "lab/answers/answer.h"
#include "lab/answers/request.h"

namespace coppice::answers {

nlohmann::json RequestToJson(const AnswerRequest& request);
// InvalidArgument names a field that is unknown or has the wrong type.
absl::StatusOr<AnswerRequest> RequestFromJson(const nlohmann::json& json);

// {"refused": code} or the fields of Answer. The text of a refusal is not part of the answer.
nlohmann::json AnswerToJson(const Answer& answer);

}  // namespace coppice::answers
