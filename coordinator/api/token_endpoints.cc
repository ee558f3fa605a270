#include "coordinator/api/token_endpoints.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/chat_fields.h"
#include "coordinator/api/json_fields.h"
#include "coordinator/api/prompt_fields.h"
#include "coordinator/api/served_models.h"
#include "coordinator/api/translation.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxTokens = 1 << 20;

std::string TokensText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The error of the fields, of an unknown one or of another model.
std::optional<ApiError> FieldsError(const ApiContext& context, JsonFields* fields) {
  const std::optional<std::string> model = fields->String({"model"});
  if (model) {
    if (auto error = CheckModelName(*model, context.model_names))
      fields->set_error(*std::move(error));
  }
  fields->IgnoreUnknown();
  return fields->error();
}

// The ids of `prompt`, which is one text, or of `messages`.
std::vector<TokenId> TakeIds(const std::string& body, const ApiContext& context, int64_t now_unix,
                             JsonFields* fields) {
  const bool chat = fields->Find({"messages"}) != nullptr;
  if (chat && fields->FindGiven({"prompt"}) != nullptr) {
    fields->Fail(kUnsupportedCombination, "prompt", "and messages cannot both be given");
    return {};
  }
  if (chat) {
    GenerateRequest request;
    ChatFields messages(context, now_unix, body);
    messages.Read(fields);
    if (!FieldsError(context, fields)) messages.MakePrompts(fields, &request);
    return fields->error() ? std::vector<TokenId>() : request.prompts.front();
  }
  const bool special = fields->Bool({"add_special_tokens"}).value_or(true);
  const json* text = fields->FindGiven({"prompt"});
  if (text == nullptr) {
    fields->Fail("missing_field", "prompt", "is required, or messages");
  } else if (!text->is_string()) {
    fields->Fail("invalid_type", "prompt",
                 absl::StrCat("must be a string, got ", text->type_name()));
  }
  if (FieldsError(context, fields)) return {};
  return context.tokenizer->Encode(text->get<std::string>(), special);
}

}  // namespace

std::variant<TokenAnswer, ApiError> Tokenize(const std::string& body, const ApiContext& context,
                                             int max_model_len, int64_t now_unix) {
  json object;
  if (std::optional<ApiError> error = ParseJsonObject(body, context.limits.max_json_depth, &object))
    return *error;
  IgnoredFields ignored(context.limits.refuse_unknown_fields);
  JsonFields fields(object, "", &ignored);
  const bool strings = fields.Bool({"return_token_strs"}).value_or(false);
  const std::vector<TokenId> ids = TakeIds(body, context, now_unix, &fields);
  if (fields.error()) return *fields.error();
  Json answer;
  answer["count"] = ids.size();
  answer["max_model_len"] = max_model_len > 0 ? Json(max_model_len) : Json();
  answer["tokens"] = ids;
  if (strings) {
    answer["token_strs"] = Json::array();
    for (const TokenId id : ids)
      answer["token_strs"].push_back(context.tokenizer->TokenBytes(id, /*skip_special=*/false));
  }
  return TokenAnswer{TokensText(answer), std::move(ignored)};
}

std::variant<TokenAnswer, ApiError> CountTokens(const std::string& body, const ApiContext& context,
                                                int64_t now_unix) {
  std::variant<ChatTranslation, ApiError> translated = TranslateMessage(body, context.limits);
  if (ApiError* error = std::get_if<ApiError>(&translated)) return std::move(*error);
  const ChatTranslation& chat = std::get<ChatTranslation>(translated);
  const json object = json::parse(chat.body);
  IgnoredFields ignored(context.limits.refuse_unknown_fields);
  JsonFields fields(object, "", &ignored);
  // What a request may have besides, and what changes no prompt.
  for (const char* name : {"max_tokens", "temperature", "top_p", "top_k", "stop", "stream",
                           "tool_choice", "parallel_tool_calls", "metadata", "response_format"})
    fields.Ignore({name});
  const std::vector<TokenId> ids = TakeIds(chat.body, context, now_unix, &fields);
  if (fields.error()) return ForClient(chat, AnswerForm::kMessage, *fields.error());
  Json answer;
  answer["input_tokens"] = ids.size();
  return TokenAnswer{TokensText(answer), IgnoredByClient(chat, AnswerForm::kMessage, ignored)};
}

std::variant<TokenAnswer, ApiError> Detokenize(const std::string& body, const ApiContext& context) {
  json object;
  if (std::optional<ApiError> error = ParseJsonObject(body, context.limits.max_json_depth, &object))
    return *error;
  IgnoredFields ignored(context.limits.refuse_unknown_fields);
  JsonFields fields(object, "", &ignored);
  const bool skip_special = fields.Bool({"skip_special_tokens"}).value_or(true);
  if (fields.FindGiven({"tokens"}) == nullptr)
    fields.Fail("missing_field", "tokens", "is required");
  const std::vector<int64_t> numbers =
      fields.Integers({"tokens"}, 0, context.vocab_size() - 1, kMaxTokens);
  if (std::optional<ApiError> error = FieldsError(context, &fields)) return *error;
  const std::vector<TokenId> ids(numbers.begin(), numbers.end());
  Json answer;
  answer["prompt"] = context.tokenizer->Decode(ids, skip_special);
  return TokenAnswer{TokensText(answer), std::move(ignored)};
}

}  // namespace coppice::coordinator
