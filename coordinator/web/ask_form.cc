#include "coordinator/web/ask_form.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tokenizer/utf8.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

// A name or a value of a form (WHATWG URL, application/x-www-form-urlencoded).
std::string FormText(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] == '+') {
      plain += ' ';
    } else if (text[i] == '%' && i + 2 < text.size() &&
               absl::SimpleHexAtoi(text.substr(i + 1, 2), &code)) {
      plain += static_cast<char>(code);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return absl::StrReplaceAll(plain, {{"\r\n", "\n"}});
}

std::map<std::string, std::string> FormFields(absl::string_view body) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view part : absl::StrSplit(body, '&')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    std::string value = FormText(field.second);
    if (!value.empty()) fields[FormText(field.first)] = std::move(value);
  }
  return fields;
}

// What is no number stays text, which the API refuses by the name of the field.
json Number(const std::string& text) {
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? json(number) : json(text);
}

}  // namespace

bool FromOwnPage(const HttpRequest& request) {
  if (!request.has_origin) return true;
  const size_t scheme = request.origin.find("://");
  return scheme != std::string::npos &&
         absl::EqualsIgnoreCase(absl::string_view(request.origin).substr(scheme + 3), request.host);
}

std::variant<GenerateRequest, ApiError> ParseAskForm(const std::string& body,
                                                     const std::string& timeout_header,
                                                     const ApiContext& context, int64_t now_unix) {
  const std::map<std::string, std::string> fields = FormFields(body);
  for (const auto& [name, value] : fields) {
    if (tokenizer::ValidUtf8(name + value) != name + value)
      return ApiError{400, "invalid_body", "the form is not UTF-8"};
  }
  const auto prompt = fields.find("prompt"), system = fields.find("system");
  if (prompt == fields.end())
    return ApiError{400, "missing_field", "there is no question", "prompt"};
  const bool chat = context.chat != nullptr;
  if (!chat && system != fields.end()) {
    return ApiError{400, "no_chat_template",
                    "the model has no chat template, so it reads no system prompt", "system"};
  }
  json request;
  if (chat) {
    if (system != fields.end())
      request["messages"].push_back({{"role", "system"}, {"content", system->second}});
    request["messages"].push_back({{"role", "user"}, {"content", prompt->second}});
  } else {
    request["prompt"] = prompt->second;
  }
  if (const auto most = fields.find("max_tokens"); most != fields.end())
    request["max_tokens"] = Number(most->second);
  if (const auto beams = fields.find("beams"); beams != fields.end() && beams->second != "1") {
    request["use_beam_search"] = true;
    request["beam_width"] = request["n"] = Number(beams->second);
  }
  std::variant<GenerateRequest, ApiError> parsed =
      chat ? ParseChatCompletion(request.dump(), timeout_header, context, now_unix)
           : ParseCompletion(request.dump(), timeout_header, context);
  if (GenerateRequest* generate = std::get_if<GenerateRequest>(&parsed)) {
    generate->form = AnswerForm::kPage;
    generate->question = prompt->second;
  }
  return parsed;
}

}  // namespace coppice::coordinator
