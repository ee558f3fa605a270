// The names under which the model is served: the check of a request's `model`. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/http/api_error.h"

namespace coppice::coordinator {

// nullopt: `model` is one of the names. Otherwise 404 model_not_found, which lists them.
std::optional<ApiError> CheckModelName(const std::string& model,
                                       const std::vector<std::string>& served);

}  // namespace coppice::coordinator
