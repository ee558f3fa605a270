#include "coordinator/api/translation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/printable_name.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr char kVariables[] = "chat_template_kwargs";
constexpr char kToolList[] = "tools";
// A translation may be nested deeper than the request.
constexpr int kDeeper = 2;

std::variant<GenerateRequest, ApiError> ParseTranslated(
    AnswerForm form, std::variant<ChatTranslation, ApiError> translated,
    const std::string& timeout_header, ApiContext context, int64_t now_unix) {
  if (ApiError* error = std::get_if<ApiError>(&translated)) return std::move(*error);
  ChatTranslation& translation = std::get<ChatTranslation>(translated);
  context.limits.max_json_depth += kDeeper;
  std::variant<GenerateRequest, ApiError> parsed =
      ParseChatCompletion(translation.body, timeout_header, context, now_unix);
  if (ApiError* error = std::get_if<ApiError>(&parsed))
    return ForClient(translation, form, std::move(*error));
  GenerateRequest& request = std::get<GenerateRequest>(parsed);
  request.form = form;
  request.ignored = IgnoredByClient(translation, form, request.ignored);
  request.repeated_fields = std::move(translation.repeated_fields);
  if (!request.format_field.empty()) request.format_field = ClientPath(form, request.format_field);
  return parsed;
}

}  // namespace

Translator::Translator(const std::string& text, const json& object, bool refuse)
    : ignored_(refuse), fields_(object, "", &ignored_), object_(object) {
  for (auto& [name, value] : MemberTexts(text)) members_[name] = value;
}

absl::string_view Translator::Text(const char* name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? "" : found->second;
}

void Translator::Set(const char* name, std::string text, const char* place) {
  set_[name] = {std::move(text), place};
}

void Translator::SetVariable(const char* name, const json& value, const char* place) {
  const json* given = fields_.Object(kVariables);
  ObjectText variables;
  if (given != nullptr) {
    if (given->contains(name) && (*given)[name] != value)
      fields_.Fail("conflicting_fields", place, absl::StrCat("and ", kVariables, " differ"));
    for (const auto& [member, text] : MemberTexts(Text(kVariables))) {
      if (member != name) variables.AddText(member, text);
    }
  }
  variables.Add(name, value);
  Place(absl::StrCat(kVariables, ".", name), place);
  Set(kVariables, variables.text(), kVariables);
}

void Translator::Place(std::string chat, std::string client) {
  places_.emplace_back(std::move(chat), std::move(client));
}

std::string Translator::AddMessage(const ObjectText& message, const std::string& place) {
  std::string path = absl::StrCat("messages[", messages_.size(), "]");
  messages_.Add(message.text());
  Place(path, place);
  return path;
}

void Translator::EachTool(void (*read)(const nlohmann::json& tool, absl::string_view text,
                                       const std::string& path, Translator* translator)) {
  const nlohmann::json* tools = fields_.FindValue({"tools"});
  if (tools == nullptr) return;
  if (!tools->is_array()) return fields_.Fail("invalid_type", "tools", "must be a list of tools");
  const std::vector<absl::string_view> texts = EntryTexts(Text("tools"));
  for (size_t i = 0; i < texts.size() && !fields_.error(); ++i)
    read((*tools)[i], texts[i], absl::StrCat("tools[", i, "]"), this);
}

void Translator::AddTool(const ObjectText& function, const std::string& place,
                         const char* parameters) {
  const std::string path = absl::StrCat(kToolList, "[", tools_.size(), "]");
  if (tools_.empty()) Place("tools[].function", "tools[]");
  Place(path, place);
  Place(absl::StrCat(path, ".function"), place);
  Place(absl::StrCat(path, ".function.parameters"), absl::StrCat(place, ".", parameters));
  tools_.Add(ObjectText().Add("type", "function").AddText("function", function.text()).text());
}

void Translator::RefuseUnshown(std::initializer_list<const char*> names) {
  const json* n = fields_.FindValue({"n"});
  if (n != nullptr && AsInteger(*n) != 1)
    fields_.Fail("unsupported_field", "n", "must be 1: this form of answer has one choice");
  if (fields_.FindValue({"min_score"}) != nullptr)
    fields_.Fail("unsupported_field", "min_score",
                 "is not supported: this form of answer always has a choice");
  for (const char* name : names) {
    if (fields_.FindValue({name}) != nullptr)
      fields_.Fail("unsupported_field", name,
                   "is not supported: this form of answer has no place for it");
  }
}

void Translator::ReadStreamOptions() {
  constexpr char kOptions[] = "stream_options";
  const json* options = fields_.Object(kOptions);
  if (options == nullptr) return;
  JsonFields inner(*options, kOptions, &ignored_);
  for (const char* name : {"include_usage", "include_obfuscation"}) inner.Ignore({name});
  inner.Hint("continuous_usage_stats", json::array());
  inner.IgnoreUnknown();
  if (inner.error()) fields_.set_error(*inner.error());
}

std::string Translator::Content(const json& content, absl::string_view text,
                                const std::string& path, std::initializer_list<PartType> types) {
  if (content.is_string()) return std::string(text);
  if (!content.is_array()) {
    fields_.Fail("invalid_type", path, "must be a text or a list of parts");
    return "";
  }
  std::vector<absl::string_view> texts = EntryTexts(text);
  ListText parts;
  std::string only;
  for (size_t i = 0; i < content.size() && !fields_.error(); ++i) {
    const std::string place = absl::StrCat(path, "[", i, "]");
    if (!content[i].is_object()) {
      fields_.Fail("invalid_type", place,
                   absl::StrCat("must be an object, got ", content[i].type_name()));
      break;
    }
    JsonFields part(content[i], place, &ignored_);
    const std::string type = part.String({"type"}).value_or("");
    const auto known = std::find_if(types.begin(), types.end(),
                                    [&](const PartType& one) { return type == one.type; });
    if (type.empty()) {
      part.Fail("missing_field", "type", "is required");
    } else if (known == types.end()) {
      part.Fail("unsupported_field", "type",
                absl::StrCat("is ", PrintableName(type),
                             ", which is not supported: the model reads texts only"));
    } else {
      const json* value = part.FindGiven({known->member});
      if (value == nullptr) {
        part.Fail("missing_field", known->member, "is required");
      } else if (!value->is_string()) {
        part.Fail("invalid_type", known->member,
                  absl::StrCat("must be a string, got ", value->type_name()));
      }
    }
    part.Hint("cache_control", json::array());
    for (const char* of_answers : {"annotations", "logprobs", "citations"})
      part.Ignore({of_answers});
    part.IgnoreUnknown();
    if (part.error()) {
      fields_.set_error(*part.error());
      break;
    }
    only = std::string(MemberText(texts[i], known->member));
    parts.Add(ObjectText().Add("type", "text").AddText("text", only).text());
  }
  return parts.size() == 1 ? only : parts.text();
}

std::variant<ChatTranslation, ApiError> Translator::Finish() {
  Set("messages", messages_.text(), "");
  if (!tools_.empty()) Set(kToolList, tools_.text(), kToolList);
  for (const std::string& name : fields_.Unknown()) {
    const auto set = set_.find(name);
    if (members_.count(name) == 0 || name == "messages") {
      fields_.IgnoreField(name, "unknown_field", "is not a known field");
    } else if (set == set_.end()) {
      out_.AddText(name, members_[name]);
    } else if (object_[name] != json::parse(set->second.first)) {
      fields_.Fail("conflicting_fields", set->second.second,
                   absl::StrCat("and ", name, " mean the same but differ"));
    }
  }
  if (fields_.error()) return *fields_.error();
  for (const auto& [name, value] : set_) out_.AddText(name, value.first);
  return ChatTranslation{out_.text(), std::move(places_), std::move(ignored_),
                         std::move(repeated_fields)};
}

std::string PartTexts(const json& list, const char* member) {
  if (list.is_string()) return list.get<std::string>();
  std::string text;
  if (!list.is_array()) return text;
  for (const json& part : list) {
    const auto found = part.is_object() ? part.find(member) : part.end();
    if (part.is_object() && found != part.end() && found->is_string())
      absl::StrAppend(&text, text.empty() ? "" : "\n", found->get_ref<const std::string&>());
  }
  return text;
}

ApiError ForClient(const ChatTranslation& translation, AnswerForm form, ApiError error) {
  std::string path = ClientPath(translation.places, error.param);
  if (path == error.param) return ForClient(form, std::move(error));
  return WithPath(std::move(path), std::move(error));
}

IgnoredFields IgnoredByClient(const ChatTranslation& translation, AnswerForm form,
                              const IgnoredFields& of_chat) {
  IgnoredFields ignored = translation.ignored;
  for (const std::string& name : of_chat.names()) {
    const std::string path = ClientPath(translation.places, name);
    ignored.Add(path == name ? ClientPath(form, name) : path);
  }
  return ignored;
}

std::variant<GenerateRequest, ApiError> ParseResponse(const std::string& body,
                                                      const std::string& timeout_header,
                                                      const ApiContext& context, int64_t now_unix) {
  return ParseTranslated(AnswerForm::kResponse, TranslateResponse(body, context.limits),
                         timeout_header, context, now_unix);
}

std::variant<GenerateRequest, ApiError> ParseMessage(const std::string& body,
                                                     const std::string& timeout_header,
                                                     const ApiContext& context, int64_t now_unix) {
  return ParseTranslated(AnswerForm::kMessage, TranslateMessage(body, context.limits),
                         timeout_header, context, now_unix);
}

}  // namespace coppice::coordinator
