// What a chat completion continues: `messages`, through the model's chat template. Called by api.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/api/prompt_fields.h"
#include "coordinator/api/tool_fields.h"
#include "coordinator/message/message_syntax.h"
#include "tokenizer/chat_template/chat_prompt.h"

namespace coppice::coordinator {

struct ApiContext;

// POST /v1/chat/completions: `messages`, `add_generation_prompt`, `continue_final_message`,
// `add_special_tokens`, `chat_template_kwargs`, `documents`, `reasoning_effort`, `enable_thinking`,
// `logprobs` and `top_logprobs`, `tools` and how they are used, and how reasoning is shown.
class ChatFields : public PromptFields {
 public:
  // body: text of the request. context, body and limit.tokenizer must outlive this.
  ChatFields(const ApiContext& context, int64_t now_unix, const std::string& body,
             const ContextLimit& limit = {});
  void Read(JsonFields* fields) override;
  bool chat() const override { return true; }
  void MakePrompts(JsonFields* fields, GenerateRequest* request) override;

 private:
  void ReadTemplateFields(JsonFields* fields);
  void ReadVariable(const char* name, const nlohmann::json& value, JsonFields* fields);
  void ReadReasoning(JsonFields* fields);
  void ReadVariables(JsonFields* fields);
  bool Reads(absl::string_view variable) const;
  nlohmann::ordered_json Ordered(const char* name) const;
  void ReadMessage(const nlohmann::json& json, const std::string& path, JsonFields* fields);
  nlohmann::ordered_json ReadContent(const std::string& path, absl::string_view role,
                                     JsonFields* fields);
  std::string ReadPart(const nlohmann::json& part, const std::string& path, JsonFields* fields);

  // What the answer may consist of. prompt: the text of the prompt.
  std::shared_ptr<MessageSyntax> Syntax(absl::string_view prompt) const;

  const ApiContext& context_;
  const tokenizer::ChatPrompt* const chat_;
  const std::string& body_;
  const ContextLimit limit_;
  const nlohmann::json* json_ = nullptr;
  tokenizer::ChatOptions options_;
  std::optional<int> logprobs_;
  tokenizer::Chat input_;
  ToolFields tools_;
  bool splits_reasoning_ = true, shows_reasoning_ = true;
};

}  // namespace coppice::coordinator
