// Finds stop strings in text that arrives in pieces and holds back what could be the start of one.
// The result does not depend on where the pieces are cut: the match that is complete first wins, of
// those the one that starts first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

class StopMatcher {
 public:
  // include: shown text ends after the match instead of before it. No stops: everything passes at
  // once.
  StopMatcher(std::vector<std::string> stops, bool include)
      : stops_(std::move(stops)), include_(include) {}

  // Text that is settled now. After a match nothing more comes out.
  std::string Append(absl::string_view text);
  // What was held back, if no match came.
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
