// What a completion continues. The endpoints differ in the fields of the prompt: `prompt` here,
// `messages` in chat_fields. Called by api.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "coordinator/api/generate_request.h"
#include "coordinator/api/json_fields.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

// The fields of a prompt. Errors go to *fields.
class PromptFields {
 public:
  virtual ~PromptFields() = default;
  // Reads the endpoint's own fields, so that they are known.
  virtual void Read(JsonFields* fields) = 0;
  // Called after Read, if no field of the request is wrong. Fills request->prompts.
  virtual void MakePrompts(JsonFields* fields, GenerateRequest* request) = 0;
};

// POST /v1/completions: `prompt`, `add_special_tokens`, `logprobs` and `echo`.
class TextPromptFields : public PromptFields {
 public:
  // tokenizer must outlive this.
  explicit TextPromptFields(const tokenizer::Tokenizer* tokenizer) : tokenizer_(*tokenizer) {}
  void Read(JsonFields* fields) override;
  void MakePrompts(JsonFields* fields, GenerateRequest* request) override;

 private:
  void AddText(const nlohmann::json& text, JsonFields* fields, GenerateRequest* request) const;
  void AddIds(const nlohmann::json& list, JsonFields* fields, GenerateRequest* request) const;

  const tokenizer::Tokenizer& tokenizer_;
  const nlohmann::json* prompt_ = nullptr;
  bool special_ = true;
  std::optional<int64_t> logprobs_;
  bool echo_ = false;
};

}  // namespace coppice::coordinator
