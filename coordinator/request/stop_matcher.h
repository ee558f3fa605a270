// Finds stop strings in text that arrives in pieces, and holds back text that could be the start of
// one. The result does not depend on the pieces. The match that ends first wins; if several end
// there, the one that starts first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

class StopMatcher {
 public:
  // include: the text ends after the match instead of before it. Without stop strings, all text
  // passes at once.
  StopMatcher(std::vector<std::string> stops, bool include)
      : stops_(std::move(stops)), include_(include) {}

  // Returns the text that can no longer change. After a match always "".
  std::string Append(absl::string_view text);
  // Returns the text that was held back, if there was no match.
  std::string Finish();
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  size_t HeldBack() const;  // bytes at the end of pending_ that may be the start of a stop

  const std::vector<std::string> stops_;
  const bool include_;
  std::string pending_;
  std::optional<std::string> matched_;
};

}  // namespace coppice::coordinator
