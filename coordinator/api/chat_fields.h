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
// `add_special_tokens`, `chat_template_kwargs`, `documents`,
// `reasoning_effort`, `logprobs` and `top_logprobs`.
class ChatFields : public PromptFields {
 public:
  // chat: nullptr if the model has no template. body: text of the request. chat, body and
  // limit.tokenizer must outlive this.
  ChatFields(const tokenizer::ChatPrompt* chat, int64_t now_unix, const std::string& body,
             const ContextLimit& limit = {});
  void Read(JsonFields* fields) override;
  bool chat() const override { return true; }
  void MakePrompts(JsonFields* fields, GenerateRequest* request) override;

 private:
  void ReadTemplateFields(JsonFields* fields);
  void ReadVariables(JsonFields* fields);
  bool Reads(absl::string_view variable) const;
  nlohmann::ordered_json Ordered(const char* name) const;
  void ReadMessage(const nlohmann::json& json, const std::string& path, JsonFields* fields);
  nlohmann::ordered_json ReadContent(const std::string& path, absl::string_view role,
                                     JsonFields* fields);
  std::string ReadPart(const nlohmann::json& part, const std::string& path, JsonFields* fields);

  const tokenizer::ChatPrompt* const chat_;
  const std::string& body_;
  const ContextLimit limit_;
  const nlohmann::json* json_ = nullptr;
  tokenizer::ChatOptions options_;
  std::optional<int> logprobs_;
  tokenizer::Chat input_;
};

}  // namespace coppice::coordinator
