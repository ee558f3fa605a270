#include "coordinator/api/chat_fields.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/token_score.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxShownText = 300;
constexpr const char* kRoles[] = {"system", "developer", "user", "assistant"};

}  // namespace

ChatFields::ChatFields(const tokenizer::ChatPrompt* chat, int64_t now_unix,
                       const ContextLimit& limit)
    : chat_(chat), limit_(limit) {
  options_.now_unix = now_unix;
}

void ChatFields::Read(JsonFields* fields) {
  json_ = fields->Find({"messages"});
  const std::optional<bool> prompt = fields->Bool({"add_generation_prompt"});
  options_.continue_final_message = fields->Bool({"continue_final_message"}).value_or(false);
  options_.add_generation_prompt = prompt.value_or(!options_.continue_final_message);
  if (options_.continue_final_message && options_.add_generation_prompt) {
    fields->Fail(kUnsupportedCombination, "continue_final_message",
                 "cannot be combined with add_generation_prompt: true: the final message is "
                 "continued, and no other one is begun");
  }
  options_.add_special_tokens = fields->Bool({"add_special_tokens"}).value_or(false);
  const bool logprobs = fields->Bool({"logprobs"}).value_or(false);
  const std::optional<int64_t> top = fields->Integer({"top_logprobs"}, 0, kMostAlternatives);
  if (logprobs) logprobs_ = static_cast<int>(top.value_or(0));
  if (!logprobs && top.value_or(0) > 0) {
    fields->Fail(kUnsupportedCombination, "top_logprobs", "needs logprobs: true");
  }
  ReadUnserved(fields);
}

void ChatFields::ReadUnserved(JsonFields* fields) {
  fields->Neutral("echo", false);
  fields->Neutral("functions", json::array());
  fields->Neutral("function_call", "none");
  fields->Neutral("tool_choice", "none");
  fields->Neutral("modalities", json::array({"text"}));
  for (const char* name : {"audio", "prediction", "web_search_options", "reasoning_effort",
                           "verbosity", "chat_template", "chat_template_kwargs", "documents"}) {
    fields->Neutral(name, nullptr);
  }
}

void ChatFields::MakePrompts(JsonFields* fields, GenerateRequest* request) {
  if (json_ == nullptr) return fields->Fail("missing_field", "messages", "is required");
  if (!json_->is_array()) {
    return fields->Fail("invalid_type", "messages", "must be a list of messages");
  }
  if (json_->empty()) return fields->Fail("invalid_value", "messages", "is empty");
  if (json_->size() > kMaxMessages) {
    return fields->Fail(
        "invalid_value", "messages",
        absl::StrCat("has at most ", kMaxMessages, " messages, got ", json_->size()));
  }
  for (size_t i = 0; i < json_->size() && !fields->error(); ++i)
    ReadMessage((*json_)[i], absl::StrCat("messages[", i, "]"), fields);
  if (fields->error()) return;
  if (chat_ == nullptr) {
    return fields->set_error(
        {400, "no_chat_template",
         "messages cannot be served: the model has no chat template. Start coppice-coordinator "
         "with --chat_template=FILE or the name of a family, or use /v1/completions",
         "messages"});
  }
  if (options_.continue_final_message && input_.messages.back()["role"] != "assistant") {
    return fields->Fail(kUnsupportedCombination, "continue_final_message",
                        "needs messages whose last role is assistant");
  }
  const absl::StatusOr<tokenizer::ChatText> text = chat_->Write(input_, options_);
  if (!text.ok()) {
    const bool refuses = text.status().code() == absl::StatusCode::kFailedPrecondition;
    const bool shows = text.status().code() != absl::StatusCode::kOutOfRange;
    return fields->Fail("invalid_value", shows ? "messages" : "continue_final_message",
                        absl::StrCat(refuses ? "are refused by the chat template: "
                                     : shows ? "cannot be put into the chat template: "
                                             : "is not possible: ",
                                     text.status().message().substr(0, kMaxShownText)));
  }
  // A template may leave out parts of the messages, so only the text that it makes is checked.
  if (!limit_.MayFit(text->text, *request, fields)) return;
  std::vector<TokenId> ids = chat_->Tokens(*text, options_);
  if (ids.empty()) return fields->Fail("invalid_value", "messages", "have no tokens");
  request->prompts.push_back(std::move(ids));
  request->turn_end_ids = chat_->end_ids();
  request->chat = true;
  request->logprobs = logprobs_;
}

void ChatFields::ReadMessage(const json& object, const std::string& path, JsonFields* fields) {
  if (!object.is_object()) {
    return fields->Fail("invalid_type", path,
                        absl::StrCat("must be an object, got ", object.type_name()));
  }
  JsonFields inner(object, path);
  nlohmann::ordered_json message;
  const std::optional<std::string> role = inner.String({"role"});
  if (!role) {
    inner.Fail("missing_field", "role", "is required");
  } else if (std::find(std::begin(kRoles), std::end(kRoles), *role) == std::end(kRoles)) {
    inner.Fail("invalid_value", "role", "must be one of system, developer, user, assistant");
  }
  message["role"] = role.value_or("");
  ReadContent(inner.Find({"content"}), path, &inner, &message);
  if (const auto name = inner.String({"name"}); name && !name->empty()) message["name"] = *name;
  inner.Neutral("tool_calls", json::array());
  inner.Neutral("tool_call_id", nullptr);
  inner.Neutral("function_call", nullptr);
  inner.Neutral("audio", nullptr);
  inner.Neutral("refusal", nullptr);
  for (const std::string& name : inner.Unknown())
    inner.set_error({400, "unknown_field", absl::StrCat(name, " is not a known field"), name});
  if (inner.error()) return fields->set_error(*inner.error());
  input_.messages.push_back(std::move(message));
}

void ChatFields::ReadContent(const json* content, const std::string& path, JsonFields* fields,
                             nlohmann::ordered_json* message) {
  if (content == nullptr) return fields->Fail("missing_field", "content", "is required");
  if (content->is_string()) {
    (*message)["content"] = *content;
    return;
  }
  if (!content->is_array()) {
    return fields->Fail("invalid_type", "content", "must be a text or a list of parts");
  }
  if (content->empty()) return fields->Fail("invalid_value", "content", "is empty");
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string name = absl::StrCat("content[", i, "]");
    if (!(*content)[i].is_object()) return fields->Fail("invalid_type", name, "must be an object");
    JsonFields part((*content)[i], absl::StrCat(path, ".", name));
    const std::optional<std::string> type = part.String({"type"});
    if (!type) {
      part.Fail("missing_field", "type", "is required");
    } else if (*type != "text") {
      part.Fail("unsupported_field", "type", "must be text: no other content is supported");
    }
    const std::optional<std::string> text = part.String({"text"});
    if (!text) part.Fail("missing_field", "text", "is required");
    for (const std::string& field : part.Unknown())
      part.set_error({400, "unknown_field", absl::StrCat(field, " is not a known field"), field});
    if (part.error()) return fields->set_error(*part.error());
    parts.push_back({{"type", "text"}, {"text", *text}});
  }
  (*message)["content"] = std::move(parts);
}

}  // namespace coppice::coordinator
