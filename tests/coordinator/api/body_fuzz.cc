// Any body of a request: it is parsed, or refused with an error that names a field. fuzz.sh runs it
// with libFuzzer; a normal test runs the seeds.
#include <cstddef>
#include <cstdint>
#include <string>

#include "coordinator/api/api.h"
#include "coordinator/api/token_endpoints.h"
#include "coordinator/api/translation.h"
#include "coordinator/web/ask_form.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/testing/fuzz_require.h"

namespace {

using coppice::coordinator::AnswerForm;
using coppice::coordinator::ApiError;

void Check(const ApiError& error) {
  using coppice::test::Require;
  Require(error.status == 400 || error.status == 404, "status " + std::to_string(error.status));
  Require(!error.message.empty(), "an error without a message");
  Require(!error.code.empty(), "no code: " + error.message);
  Require(!error.param.empty() || error.code == "invalid_json" || error.code == "invalid_header" ||
              error.code == "invalid_body",
          "no field: " + error.code + ": " + error.message);
}

std::variant<coppice::coordinator::GenerateRequest, ApiError> Parse(
    AnswerForm form, const std::string& body, const coppice::coordinator::ApiContext& context) {
  using namespace coppice::coordinator;  // NOLINT
  switch (form) {
    case AnswerForm::kCompletion:
      return ParseCompletion(body, "", context);
    case AnswerForm::kChat:
      return ParseChatCompletion(body, "", context, 0);
    case AnswerForm::kResponse:
      return ParseResponse(body, "", context, 0);
    case AnswerForm::kMessage:
      return ParseMessage(body, "", context, 0);
    case AnswerForm::kPage:
      break;
  }
  return ParseAskForm(body, "", context, 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coppice::coordinator;  // NOLINT
  static const ByteTokenizer tokenizer;
  static const coppice::tokenizer::ChatPrompt chat(
      *coppice::tokenizer::ChatTemplate::Parse(
          "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"),
      "<s>", "</s>", &tokenizer);
  ApiContext context;
  context.model_names = {"demo"};
  context.tokenizer = &tokenizer;
  context.chat = &chat;
  const std::string body(reinterpret_cast<const char*>(data), size);
  ModelLimits model;
  model.max_model_len = 512;
  model.vocab_size = tokenizer.vocab_size();
  model.kv_blocks_total = 1000;
  for (const AnswerForm form : {AnswerForm::kCompletion, AnswerForm::kChat, AnswerForm::kResponse,
                                AnswerForm::kMessage, AnswerForm::kPage}) {
    std::variant<GenerateRequest, ApiError> parsed = Parse(form, body, context);
    if (const ApiError* error = std::get_if<ApiError>(&parsed)) {
      Check(*error);
    } else if (const auto refused =
                   FitToModel(model, context.limits, &std::get<GenerateRequest>(parsed))) {
      Check(*refused);
    }
  }
  const auto tokens = Tokenize(body, context, 512, 0);
  if (const ApiError* error = std::get_if<ApiError>(&tokens)) Check(*error);
  const auto counted = CountTokens(body, context, 0);
  if (const ApiError* error = std::get_if<ApiError>(&counted)) Check(*error);
  const auto text = Detokenize(body, context);
  if (const ApiError* error = std::get_if<ApiError>(&text)) Check(*error);
  return 0;
}
