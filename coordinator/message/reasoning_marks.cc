#include "coordinator/message/reasoning_marks.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace coppice::coordinator {
namespace {

const std::vector<ReasoningMarks>& KnownMarks() {
  static const std::vector<ReasoningMarks> marks = {
      {"<think>", "</think>"},
      {"[THINK]", "[/THINK]"},
      {"<seed:think>", "</seed:think>"},
      {"<|START_THINKING|>", "<|END_THINKING|>"},
  };
  return marks;
}

}  // namespace

std::optional<ReasoningMarks> DetectReasoning(absl::FunctionRef<bool(absl::string_view)> mentions) {
  for (const ReasoningMarks& marks : KnownMarks()) {
    if (mentions(marks.open) || mentions(marks.close)) return marks;
  }
  return std::nullopt;
}

bool ReasoningBegun(const ReasoningMarks& marks, absl::string_view prompt_text) {
  return !marks.open.empty() &&
         absl::EndsWith(absl::StripTrailingAsciiWhitespace(prompt_text), marks.open);
}

}  // namespace coppice::coordinator
