// Text of a chat template -> syntax tree. An unsupported tag, filter, test, method or function is
// refused with its line and name. Called at start-up. Pure.
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
