#include "tokenizer/model_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "model_files/model_files.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

absl::StatusOr<TokenId> ReadId(const Json& value, const std::string& path, const char* key) {
  if (!value.is_number_integer() || value < 0 || value > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", key, ": expected a token id, got ", value.dump().substr(0, 40)));
  }
  return value.get<TokenId>();
}

absl::Status AddEosIds(const Json& json, const std::string& path, std::vector<TokenId>* ids) {
  const auto it = json.find("eos_token_id");
  if (it == json.end() || it->is_null()) return absl::OkStatus();
  const Json list = it->is_array() ? *it : Json::array({*it});
  for (const Json& value : list) {
    COPPICE_ASSIGN_OR_RETURN(const TokenId id, ReadId(value, path, "eos_token_id"));
    ids->push_back(id);
  }
  return absl::OkStatus();
}

// A token of tokenizer_config.json is a string, or an object with the string as its content.
std::string TokenContent(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) {
    return (*it)["content"].get<std::string>();
  }
  return "";
}

std::optional<bool> OptionalBool(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_boolean()) return std::nullopt;
  return it->get<bool>();
}

}  // namespace

bool FileExists(const std::string& path) { return model_files::ModelTextExists(path); }

absl::StatusOr<Json> ReadOptionalObject(const std::string& dir, const std::string& name) {
  const std::string path = dir + "/" + name;
  if (!FileExists(path)) return Json::object();
  COPPICE_ASSIGN_OR_RETURN(const std::string text,
                           model_files::ReadModelText(path, kMostSettingsBytes));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a JSON object"));
  }
  return json;
}

absl::StatusOr<SpecialTokenSettings> ReadSpecialTokenSettings(const std::string& dir) {
  SpecialTokenSettings settings;
  COPPICE_ASSIGN_OR_RETURN(const Json config, ReadOptionalObject(dir, "config.json"));
  const auto bos = config.find("bos_token_id");
  if (bos != config.end() && !bos->is_null()) {
    COPPICE_ASSIGN_OR_RETURN(settings.bos_id, ReadId(*bos, dir + "/config.json", "bos_token_id"));
  }
  COPPICE_RETURN_IF_ERROR(AddEosIds(config, dir + "/config.json", &settings.eos_ids));
  COPPICE_ASSIGN_OR_RETURN(const Json generation,
                           ReadOptionalObject(dir, "generation_config.json"));
  COPPICE_RETURN_IF_ERROR(
      AddEosIds(generation, dir + "/generation_config.json", &settings.eos_ids));
  std::sort(settings.eos_ids.begin(), settings.eos_ids.end());
  settings.eos_ids.erase(std::unique(settings.eos_ids.begin(), settings.eos_ids.end()),
                         settings.eos_ids.end());
  COPPICE_ASSIGN_OR_RETURN(const Json tokenizer, ReadOptionalObject(dir, "tokenizer_config.json"));
  settings.bos_token = TokenContent(tokenizer, "bos_token");
  settings.eos_token = TokenContent(tokenizer, "eos_token");
  settings.add_bos = OptionalBool(tokenizer, "add_bos_token");
  settings.add_eos = OptionalBool(tokenizer, "add_eos_token");
  settings.legacy = OptionalBool(tokenizer, "legacy");
  return settings;
}

}  // namespace coppice::tokenizer
