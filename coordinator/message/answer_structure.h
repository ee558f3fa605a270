// The text that an answer with tools or reasoning may have, as a structural tag: JSON that
// grammar/compile.h reads. What it allows, message_parser.h reads back. Pure.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/message/message_syntax.h"

namespace coppice::coordinator {

// The calls that syntax.choice allows or demands, with the arguments that each tool's schema
// allows, after the reasoning if there is one. is_special: the tokenizer has a special token of
// exactly this text, so that it is written as this token. Fails if a schema is no JSON, or if there
// is no format or tool to call.
absl::StatusOr<std::string> AnswerStructure(const MessageSyntax& syntax,
                                            absl::FunctionRef<bool(absl::string_view)> is_special);

// A structural tag whose format is `format_json`, after the reasoning if there is one. format_json:
// a format of a structural tag, as JSON.
absl::StatusOr<std::string> BehindReasoning(const MessageSyntax& syntax,
                                            absl::string_view format_json,
                                            absl::FunctionRef<bool(absl::string_view)> is_special);

}  // namespace coppice::coordinator
