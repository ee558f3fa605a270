#include "coordinator/api/served_models.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/printable_name.h"

namespace coppice::coordinator {

std::optional<ApiError> CheckModelName(const std::string& model,
                                       const std::vector<std::string>& served) {
  if (absl::c_linear_search(served, model)) return std::nullopt;
  const std::string nearest = NearestName(model, served);
  return ApiError{
      404, "model_not_found",
      absl::StrCat("The model '", PrintableName(model),
                   "' does not exist; this server has: ", absl::StrJoin(served, ", "),
                   nearest.empty() ? "" : "; did you mean ", nearest, nearest.empty() ? "" : "?"),
      "model"};
}

}  // namespace coppice::coordinator
