// How the reasoning of a model is marked, as its chat template tells, and whether a prompt has
// begun it. Pure.
#pragma once

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "coordinator/message/message_syntax.h"

namespace coppice::coordinator {

// mentions: whether the template's source has a text. nullopt: the model does not reason.
std::optional<ReasoningMarks> DetectReasoning(absl::FunctionRef<bool(absl::string_view)> mentions);

// The prompt ends inside of the reasoning of the answer: the last mark in it is the opening one,
// and only white space follows it.
bool ReasoningBegun(const ReasoningMarks& marks, absl::string_view prompt_text);

}  // namespace coppice::coordinator
