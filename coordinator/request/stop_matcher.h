// Finds stop strings in text that arrives in pieces, and holds back text that could be the start of
// one. The result does not depend on the pieces. The match that ends first wins; if several end
// there, the one that starts first.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tokenizer/stop_automaton.h"

namespace coppice::coordinator {

class StopMatcher {
 public:
  // include: the text ends after the match instead of before it. Without stop strings, all text
  // passes at once.
  StopMatcher(absl::Span<const std::string> stops, bool include)
      : stops_(stops), searches_(!stops.empty()), include_(include) {}

  // Returns the text that can no longer change. After a match always "".
  std::string Append(absl::string_view text);
  // Returns the text that was held back, if there was no match.
  std::string Finish();
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  const tokenizer::StopAutomaton stops_;
  const bool searches_;  // there are stop strings
  const bool include_;
  tokenizer::StopAutomaton::Node node_ = 0;
  std::string pending_;  // the text that may be the start of a stop
  std::optional<std::string> matched_;
};

}  // namespace coppice::coordinator
