// Text of a chat template -> syntax tree. A tag, filter, test, method or function that is not
// supported is refused with its line and name, unless it does not exist in Jinja2 either and is used
// under a condition. Called at start-up. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/chat_template/syntax.h"

namespace coppice::tokenizer::jinja {

// Limits of a template. They bound the stack of the parser, the renderer and the destructor.
inline constexpr size_t kMaxTemplateBytes = 256 << 10;
inline constexpr int kMaxExpressionDepth = 100;
inline constexpr int kMaxBlockDepth = 50;

absl::StatusOr<Block> ParseTemplate(absl::string_view source);

}  // namespace coppice::tokenizer::jinja
