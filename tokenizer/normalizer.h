// The normalizer of a tokenizer.json, applied to each text between special tokens. Built at
// start-up by the BPE tokenizer. Immutable and thread-safe.
#pragma once

#include <bitset>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/regex.h"

namespace coppice::tokenizer {

class Normalizer {
 public:
  // json: null (identity), Sequence, Prepend, Replace or NFC. Errors name the component.
  static absl::StatusOr<Normalizer> FromJson(const nlohmann::json& json);

  std::string Apply(absl::string_view text) const;  // text: valid UTF-8
  // A text is at most this many times as long as the result of Apply; 0 = there is no limit.
  size_t MostShrinking() const { return most_shrinking_; }
  // Whether an ASCII character that is followed by another one is unchanged in every text.
  bool Keeps(char c) const { return kept_[static_cast<uint8_t>(c) & 0x7f]; }
  // Whether a character that comes many times in a row is unchanged in every text, but for the
  // first and the last of them.
  bool KeepsRun(absl::string_view c) const;

 private:
  struct PrependStep {
    std::string prefix;  // put before a text that is not empty
  };
  struct ReplaceStep {
    Regex regex;
    std::optional<std::string> literal;  // what the pattern matches, if that is one text
    std::string content;                 // replacement as written
  };
  struct NfcStep {};
  using Step = std::variant<PrependStep, ReplaceStep, NfcStep>;

  absl::Status AddSteps(const nlohmann::json& json, int depth);
  void ForgetKept(const nlohmann::json& pattern);

  std::vector<Step> steps_;
  size_t most_shrinking_ = 1;
  std::bitset<128> kept_ = std::bitset<128>().set();
};

}  // namespace coppice::tokenizer
