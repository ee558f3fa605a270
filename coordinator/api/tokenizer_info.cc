#include "coordinator/api/tokenizer_info.h"

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "coordinator/api/json_text.h"
#include "model_files/model_files.h"
#include "tokenizer/chat_template/template_source.h"
#include "tokenizer/model_folder.h"

namespace coppice::coordinator {

std::string TokenizerInfoJson(absl::string_view config, const std::string& chat_template,
                              int vocab_size) {
  ObjectText info;
  absl::string_view type = "null";
  const bool valid = nlohmann::json::accept(config.begin(), config.end());
  for (const auto& [name, text] : MemberTexts(valid ? config : "{}")) {
    if (name == "tokenizer_class") {
      type = text;
    } else if (name != "chat_template" && name != "vocab_size") {
      info.AddText(name, CompactText(text));
    }
  }
  info.AddText("tokenizer_class", type);
  info.Add("chat_template", chat_template.empty() ? nlohmann::ordered_json()
                                                  : nlohmann::ordered_json(chat_template));
  return info.Add("vocab_size", vocab_size).text();
}

absl::StatusOr<std::string> LoadTokenizerInfo(const std::string& dir,
                                              const std::string& chat_template,
                                              const tokenizer::Tokenizer& tokenizer) {
  const std::string path = dir + "/tokenizer_config.json";
  std::string config;
  if (tokenizer::FileExists(path)) {
    COPPICE_ASSIGN_OR_RETURN(config, model_files::ReadModelText(path, kMostSettingsBytes));
  }
  COPPICE_ASSIGN_OR_RETURN(const tokenizer::TemplateSource source,
                           tokenizer::FindTemplate(dir, chat_template));
  return TokenizerInfoJson(config, source.text, tokenizer.vocab_size());
}

}  // namespace coppice::coordinator
