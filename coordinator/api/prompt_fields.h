// What a completion continues. The endpoints differ in the fields of the prompt: `prompt` here,
// `messages` in chat_fields. Called by api.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "absl/strings/string_view.h"
#include "coordinator/api/generate_request.h"
#include "coordinator/api/json_fields.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

// The context that a prompt must fit into, as far as it is known before a replica is chosen.
struct ContextLimit {
  const tokenizer::Tokenizer* tokenizer = nullptr;
  int max_model_len = 0;  // 0: not known
  // False, with the error in *fields, if the text certainly has too many tokens. It is then refused
  // without being tokenized, which would take longer the longer the text is.
  bool MayFit(absl::string_view text, const GenerateRequest& request, JsonFields* fields) const;
};

// The field that has the prompt: "messages", "prompt" or "input".
const char* PromptField(const GenerateRequest& request);

// context_length_exceeded, in the words that clients of other servers look for. at_least: the
// prompt may have more tokens than prompt_tokens.
ApiError ContextLengthError(const GenerateRequest& request, int64_t max_model_len,
                            int64_t prompt_tokens, bool at_least = false);

// The fields of a prompt. Errors go to *fields.
class PromptFields {
 public:
  virtual ~PromptFields() = default;
  // Reads the endpoint's own fields, so that they do not count as unknown.
  virtual void Read(JsonFields* fields) = 0;
  virtual bool chat() const { return false; }
  // Called after Read, if no field of the request is wrong. Fills request->prompts.
  virtual void MakePrompts(JsonFields* fields, GenerateRequest* request) = 0;
};

// POST /v1/completions: `prompt`, `add_special_tokens`, `logprobs` and `echo`.
class TextPromptFields : public PromptFields {
 public:
  // limit.tokenizer must outlive this.
  // vocab_size: ids that a prompt may have. Those that the tokenizer does not know have no text.
  TextPromptFields(const ContextLimit& limit, int vocab_size)
      : limit_(limit), tokenizer_(*limit.tokenizer), vocab_size_(vocab_size) {}
  void Read(JsonFields* fields) override;
  void MakePrompts(JsonFields* fields, GenerateRequest* request) override;

 private:
  void AddText(const nlohmann::json& text, JsonFields* fields, GenerateRequest* request) const;
  void AddIds(const nlohmann::json& list, JsonFields* fields, GenerateRequest* request) const;

  const ContextLimit limit_;
  const tokenizer::Tokenizer& tokenizer_;
  const int vocab_size_;
  const nlohmann::json* prompt_ = nullptr;
  bool special_ = true;
  std::optional<int64_t> logprobs_;
  bool echo_ = false;
};

}  // namespace coppice::coordinator
