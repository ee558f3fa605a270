// A chat template: messages -> the text that the model was trained on. The language is the part of
// Jinja2 that chat templates use, with the settings of Hugging Face Transformers (trim_blocks,
// lstrip_blocks, the sandbox). Made at start-up, used for every chat request. Immutable and
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

// The limits of one rendering. Rendering a usual chat takes tens of steps for each message.
struct ChatRenderLimits {
  int64_t max_steps = 2'000'000;   // evaluated nodes, items, and 64 bytes of text each
  int64_t max_bytes = 16ll << 20;  // of the text, and of each text made on the way
};

class ChatTemplate {
 public:
  // InvalidArgument: "line 3: the filter foo is not supported".
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // variables: an object (messages, add_generation_prompt, bos_token, ...). now_unix: the time that
  // strftime_now shows. FailedPrecondition: the template refuses the messages, in its own words.
  // InvalidArgument: it cannot be evaluated with them. ResourceExhausted: a limit is exceeded.
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& variables, int64_t now_unix,
                                     const ChatRenderLimits& limits = {}) const;

  // Whether the template has this name, so that the variable may change what it writes.
  bool Reads(absl::string_view variable) const;
  // Whether the word occurs in a constant text of the template.
  bool Mentions(absl::string_view word) const;
  // Whether the source has this text, as it is written or in a constant.
  bool HasText(absl::string_view text) const;

 private:
  struct Tree;
  ChatTemplate();
  std::unique_ptr<Tree> tree_;
};

}  // namespace coppice::tokenizer
