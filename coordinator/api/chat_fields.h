// What a chat completion continues: `messages`, through the model's chat template. Called by api.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/api/prompt_fields.h"
#include "tokenizer/chat_template/chat_prompt.h"

namespace coppice::coordinator {

// POST /v1/chat/completions: `messages`, `add_generation_prompt`, `continue_final_message`,
// `add_special_tokens`, `logprobs`, `top_logprobs`, and the fields of other servers that are
// refused unless neutral.
class ChatFields : public PromptFields {
 public:
  // chat: nullptr if the model has no template. chat and limit.tokenizer must outlive this.
  ChatFields(const tokenizer::ChatPrompt* chat, int64_t now_unix, const ContextLimit& limit = {});
  void Read(JsonFields* fields) override;
  void MakePrompts(JsonFields* fields, GenerateRequest* request) override;

 private:
  void ReadUnserved(JsonFields* fields);
  void ReadMessage(const nlohmann::json& json, const std::string& path, JsonFields* fields);
  void ReadContent(const nlohmann::json* content, const std::string& path, JsonFields* fields,
                   nlohmann::ordered_json* message);

  const tokenizer::ChatPrompt* const chat_;
  const ContextLimit limit_;
  const nlohmann::json* json_ = nullptr;
  tokenizer::ChatOptions options_;
  std::optional<int> logprobs_;
  tokenizer::Chat input_;
};

}  // namespace coppice::coordinator
