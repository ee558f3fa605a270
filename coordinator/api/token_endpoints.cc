#include "coordinator/api/token_endpoints.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/chat_fields.h"
#include "coordinator/api/json_fields.h"
#include "coordinator/api/prompt_fields.h"

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
  if (model && *model != context.model_name) {
    fields->set_error(
        {404, "model_not_found", "model is not served here, see GET /v1/models", "model"});
  }
  if (!context.limits.ignore_unknown_fields) {
    for (const std::string& name : fields->Unknown())
      fields->set_error({400, "unknown_field", absl::StrCat(name, " is not a known field"), name});
  }
  return fields->error();
}

// The ids of `prompt`, which is one text, or of `messages`.
std::vector<TokenId> TakeIds(const json& object, const ApiContext& context, int64_t now_unix,
                             JsonFields* fields) {
  if (fields->Find({"prompt"}) != nullptr && fields->Find({"messages"}) != nullptr) {
    fields->Fail(kUnsupportedCombination, "prompt", "and messages cannot both be given");
    return {};
  }
  if (fields->Find({"messages"}) != nullptr) {
    GenerateRequest request;
    ChatFields chat(context.chat, now_unix);
    chat.Read(fields);
    if (!FieldsError(context, fields)) chat.MakePrompts(fields, &request);
    return fields->error() ? std::vector<TokenId>() : request.prompts.front();
  }
  const bool special = fields->Bool({"add_special_tokens"}).value_or(true);
  const std::optional<std::string> text = fields->String({"prompt"});
  if (!object.contains("prompt") || object["prompt"].is_null())
    fields->Fail("missing_field", "prompt", "is required, or messages");
  if (FieldsError(context, fields)) return {};
  return context.tokenizer->Encode(*text, special);
}

}  // namespace

std::variant<std::string, ApiError> Tokenize(const std::string& body, const ApiContext& context,
                                             int max_model_len, int64_t now_unix) {
  json object;
  if (std::optional<ApiError> error = ParseJsonObject(body, context.limits.max_json_depth, &object))
    return *error;
  JsonFields fields(object, "");
  const bool strings = fields.Bool({"return_token_strs"}).value_or(false);
  const std::vector<TokenId> ids = TakeIds(object, context, now_unix, &fields);
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
  return TokensText(answer);
}

std::variant<std::string, ApiError> Detokenize(const std::string& body, const ApiContext& context) {
  json object;
  if (std::optional<ApiError> error = ParseJsonObject(body, context.limits.max_json_depth, &object))
    return *error;
  JsonFields fields(object, "");
  const bool skip_special = fields.Bool({"skip_special_tokens"}).value_or(true);
  if (fields.Find({"tokens"}) == nullptr) fields.Fail("missing_field", "tokens", "is required");
  const std::vector<int64_t> numbers =
      fields.Integers({"tokens"}, 0, context.vocab_size() - 1, kMaxTokens);
  if (std::optional<ApiError> error = FieldsError(context, &fields)) return *error;
  const std::vector<TokenId> ids(numbers.begin(), numbers.end());
  Json answer;
  answer["prompt"] = context.tokenizer->Decode(ids, skip_special);
  return TokensText(answer);
}

}  // namespace coppice::coordinator
