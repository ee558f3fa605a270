#include "tokenizer/chat_template/template_source.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "model_files/model_files.h"
#include "tokenizer/chat_template/chat_prompt.h"
#include "tokenizer/chat_template/families.h"
#include "tokenizer/model_folder.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

// chat_template of a tokenizer_config.json: a text, or a list of {name, template}, of which the one
// called default counts.
absl::StatusOr<TemplateSource> FromConfig(const std::string& path) {
  if (!FileExists(path)) return TemplateSource{};
  COPPICE_ASSIGN_OR_RETURN(const std::string text,
                           model_files::ReadModelText(path, kMostSettingsBytes));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("chat_template")) return TemplateSource{};
  const Json& found = json["chat_template"];
  const std::string name = absl::StrCat(path, ": chat_template");
  if (found.is_null()) return TemplateSource{};
  if (found.is_string()) return TemplateSource{found.get<std::string>(), name};
  const auto is_text = [](const Json& entry, const char* key) {
    return entry.is_object() && entry.contains(key) && entry[key].is_string();
  };
  if (found.is_array()) {
    for (const Json& entry : found) {
      if (!is_text(entry, "name") || !is_text(entry, "template")) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": expected a list of {\"name\": ..., \"template\": ...}"));
      }
      if (entry["name"] == "default")
        return TemplateSource{entry["template"].get<std::string>(), name + " default"};
    }
    return TemplateSource{};
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": expected a text or a list, got ", found.type_name()));
}

}  // namespace

absl::StatusOr<TemplateSource> FindTemplate(const std::string& dir, const std::string& choice) {
  if (choice == "none") return TemplateSource{};
  if (!choice.empty()) {
    if (const char* family = FamilyTemplate(choice)) return TemplateSource{family, choice};
    if (!FileExists(choice)) {
      return absl::NotFoundError(absl::StrCat("--chat_template: ", choice,
                                              ": expected a file, none, or one of ",
                                              absl::StrJoin(FamilyNames(), ", ")));
    }
    COPPICE_ASSIGN_OR_RETURN(std::string text, ReadRegularFile(choice, kMostSettingsBytes));
    return TemplateSource{std::move(text), choice};
  }
  const std::string file = dir + "/chat_template.jinja";
  if (!FileExists(file)) return FromConfig(dir + "/tokenizer_config.json");
  COPPICE_ASSIGN_OR_RETURN(std::string text, model_files::ReadModelText(file, kMostSettingsBytes));
  return TemplateSource{std::move(text), file};
}

absl::StatusOr<std::unique_ptr<ChatPrompt>> ChatPrompt::Load(const std::string& dir,
                                                             const std::string& choice,
                                                             const Tokenizer* tokenizer) {
  COPPICE_ASSIGN_OR_RETURN(const TemplateSource source, FindTemplate(dir, choice));
  if (source.name.empty()) return std::unique_ptr<ChatPrompt>();
  absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source.text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.name, ": ", parsed.status().message(),
                     " (another template: --chat_template=FILE or FAMILY; no chat: none)"));
  }
  COPPICE_ASSIGN_OR_RETURN(const SpecialTokenSettings settings, ReadSpecialTokenSettings(dir));
  const auto text_of = [tokenizer](const std::string& given, TokenId id) {
    return given.empty() && id >= 0 ? tokenizer->TokenBytes(id, /*skip_special=*/false) : given;
  };
  const std::vector<TokenId> eos = tokenizer->eos_ids();
  return std::make_unique<ChatPrompt>(
      *std::move(parsed), text_of(settings.bos_token, tokenizer->bos_id()),
      text_of(settings.eos_token, eos.empty() ? -1 : eos[0]), tokenizer);
}

}  // namespace coppice::tokenizer
