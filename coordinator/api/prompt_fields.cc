#include "coordinator/api/prompt_fields.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/token_score.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr size_t kMaxPrompts = 64;

}  // namespace

const char* PromptField(const GenerateRequest& request) {
  if (request.form == AnswerForm::kResponse) return "input";
  return request.chat() ? "messages" : "prompt";
}

ApiError ContextLengthError(const GenerateRequest& request, int64_t max_model_len,
                            int64_t prompt_tokens, bool at_least) {
  const char* prompt = PromptField(request);
  const std::string tokens = absl::StrCat(at_least ? "at least " : "", prompt_tokens);
  std::string message =
      absl::StrCat("This model's maximum context length is ", max_model_len, " tokens. However, ");
  if (request.max_tokens_given) {
    absl::StrAppend(&message, "you requested ", at_least ? "at least " : "",
                    prompt_tokens + request.max_tokens(), " tokens (", tokens, " in the ", prompt,
                    ", ", request.max_tokens(),
                    " in the completion). Please reduce the length of the ", prompt,
                    " or completion.");
  } else {
    absl::StrAppend(
        &message, "your ", prompt, " resulted in ", tokens,
        " tokens, which leaves no room for a completion. Please reduce the length of the ", prompt,
        ".");
  }
  return {400, "context_length_exceeded", std::move(message),
          request.max_tokens_given ? "max_tokens" : prompt};
}

// FitToModel checks whether the completion fits too, when the number of tokens is known.
bool ContextLimit::MayFit(absl::string_view text, const GenerateRequest& request,
                          JsonFields* fields) const {
  if (max_model_len <= 0) return true;
  const size_t fewest = tokenizer->FewestTokens(text);
  if (fewest + (request.score_only ? 0 : 1) <= static_cast<size_t>(max_model_len)) return true;
  fields->set_error(
      ContextLengthError(request, max_model_len, static_cast<int64_t>(fewest), /*at_least=*/true));
  return false;
}

void TextPromptFields::Read(JsonFields* fields) {
  prompt_ = fields->FindGiven({"prompt"});
  special_ = fields->Bool({"add_special_tokens"}).value_or(true);
  logprobs_ = fields->Integer({"logprobs"}, 0, kMostAlternatives);
  echo_ = fields->Bool({"echo"}).value_or(false);
}

void TextPromptFields::MakePrompts(JsonFields* fields, GenerateRequest* request) {
  if (logprobs_) request->logprobs = static_cast<int>(*logprobs_);
  request->echo = echo_;
  if (prompt_ == nullptr) return fields->Fail("missing_field", "prompt", "is required");
  const json& prompt = *prompt_;
  if (prompt.is_string()) return AddText(prompt, fields, request);
  if (!prompt.is_array()) {
    return fields->Fail("invalid_type", "prompt",
                        "must be a string, a list of strings, or token ids");
  }
  if (prompt.empty()) return fields->Fail("invalid_value", "prompt", "is empty");
  if (AllOf(prompt, &json::is_number)) return AddIds(prompt, fields, request);
  const bool texts = AllOf(prompt, &json::is_string);
  if (!texts && !AllOf(prompt, &json::is_array)) {
    return fields->Fail("invalid_type", "prompt",
                        "must be a string, a list of strings, or token ids, not a mixture");
  }
  if (prompt.size() > kMaxPrompts) {
    return fields->Fail("invalid_value", "prompt",
                        absl::StrCat("has at most ", kMaxPrompts, " prompts, got ", prompt.size()));
  }
  for (const json& entry : prompt) {
    if (fields->error()) return;
    if (texts) {
      AddText(entry, fields, request);
    } else {
      AddIds(entry, fields, request);
    }
  }
}

void TextPromptFields::AddText(const json& text, JsonFields* fields,
                               GenerateRequest* request) const {
  const std::string& bytes = text.get_ref<const std::string&>();
  if (!limit_.MayFit(bytes, *request, fields)) return;
  std::vector<TokenId> ids = tokenizer_.Encode(bytes, special_);
  if (ids.empty()) return fields->Fail("invalid_value", "prompt", "has no tokens");
  request->prompts.push_back(std::move(ids));
}

void TextPromptFields::AddIds(const json& list, JsonFields* fields,
                              GenerateRequest* request) const {
  std::vector<TokenId> ids;
  for (const json& entry : list) {
    const std::optional<int64_t> id = AsInteger(entry);
    if (!entry.is_number())
      return fields->Fail("invalid_type", "prompt", "has token ids that are not integers");
    if (!id || *id < 0 || *id >= vocab_size_) {
      return fields->Fail("invalid_value", "prompt",
                          absl::StrCat("has token ids between 0 and ", vocab_size_ - 1));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  if (ids.empty()) return fields->Fail("invalid_value", "prompt", "has no tokens");
  request->prompts.push_back(std::move(ids));
}

}  // namespace coppice::coordinator
