#include "coordinator/api/sampling_defaults.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "model_files/model_files.h"

namespace coppice::coordinator {
namespace {

constexpr const char* kNames[] = {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"};

// nullopt: of another type.
std::optional<decoding::ParameterValue> ValueOf(const decoding::ParameterRow& row,
                                                const nlohmann::json& json) {
  if (row.member.type == decoding::ParameterType::kNumber) {
    if (!json.is_number()) return std::nullopt;
    return json.get<double>();
  }
  const std::optional<int64_t> number = AsInteger(json);
  if (!number) return std::nullopt;
  return std::max<int64_t>(*number, 0);  // top_k -1 means the same as 0
}

}  // namespace

absl::StatusOr<SamplingDefaults> SamplingDefaults::Load(const std::string& dir) {
  SamplingDefaults defaults;
  const std::string path = (std::filesystem::path(dir) / "generation_config.json").string();
  if (!model_files::ModelTextExists(path)) return defaults;
  COPPICE_ASSIGN_OR_RETURN(const std::string text,
                           model_files::ReadModelText(path, kMostSettingsBytes));
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a JSON object"));
  decoding::DecodingParams checked;
  for (const char* name : kNames) {
    const auto it = config.find(name);
    if (it == config.end() || it->is_null()) continue;
    const decoding::ParameterRow& row = *decoding::FindParameter(name);
    const std::optional<decoding::ParameterValue> value = ValueOf(row, *it);
    const absl::Status status =
        value ? decoding::SetParameter(row, *value, &checked)
              : absl::InvalidArgumentError(absl::StrCat(name, ": is no number"));
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", status.message(),
                       "; --generation_config=none leaves its sampling values out"));
    }
    if (!decoding::IsDefault(row, checked)) defaults.values_.emplace_back(&row, *value);
  }
  return defaults;
}

void SamplingDefaults::Apply(const GivenParameters& given, decoding::DecodingParams* params) const {
  for (const auto& [row, value] : values_) {
    if (given.Has(row->name)) continue;
    // Beams cannot be sampled at temperature 0.
    const bool greedy =
        absl::string_view(row->name) == "temperature" && std::get<double>(value) == 0;
    if (greedy && params->kind != sampling::DecodingKind::kMultinomial) continue;
    row->member.put(value, params);
  }
}

nlohmann::ordered_json SamplingDefaults::ToJson() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [row, value] : values_) {
    std::visit([&, name = row->name](auto scalar) { json[std::string(name)] = scalar; }, value);
  }
  return json;
}

std::string SamplingDefaults::Text() const {
  std::string text;
  const nlohmann::ordered_json json = ToJson();
  for (const auto& [name, value] : json.items())
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ", value.dump());
  return text;
}

}  // namespace coppice::coordinator
