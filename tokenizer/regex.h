// A compiled Unicode regular expression (PCRE2 with JIT), as tokenizer.json files name them: in the
// syntax of Oniguruma (onig_pattern.h).
// Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

class Regex {
 public:
  struct Range {
    size_t begin = 0, end = 0;  // bytes
  };

  // literal: pattern stands for itself. InvalidArgument names the pattern and the position of the
  // fault.
  static absl::StatusOr<Regex> Compile(const std::string& pattern, bool literal);

  // All matches in text (valid UTF-8), left to right, without overlap, none empty. If the matcher
  // hits its resource limits, there are no matches from there on.
  std::vector<Range> FindAll(absl::string_view text) const;

 private:
  std::shared_ptr<void> code_;  // pcre2_code
  bool literal_ = false;
};

}  // namespace coppice::tokenizer
