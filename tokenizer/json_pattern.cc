#include "tokenizer/json_pattern.h"

#include <nlohmann/json.hpp>

namespace coppice::tokenizer {

absl::StatusOr<Regex> CompileJsonPattern(const nlohmann::json& json) {
  if (json.contains("String")) {
    return Regex::Compile(json["String"].get<std::string>(), /*literal=*/true);
  }
  if (json.contains("Regex")) {
    return Regex::Compile(json["Regex"].get<std::string>(), /*literal=*/false);
  }
  return absl::InvalidArgumentError("pattern: expected {\"String\": ...} or {\"Regex\": ...}");
}

}  // namespace coppice::tokenizer
