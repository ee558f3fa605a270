// The pre_tokenizer of a tokenizer.json: cuts a normalized text into words. BPE merges within words
// only. Built at start-up by the BPE tokenizer. Immutable and thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/regex.h"

namespace coppice::tokenizer {

class PreTokenizer {
 public:
  // json: null (no cut), Sequence, ByteLevel, Split, Metaspace or Digits. Errors name the
  // component.
  static absl::StatusOr<PreTokenizer> FromJson(const nlohmann::json& json);

  // text: valid UTF-8. at_text_start: nothing, not even a special token, precedes it.
  std::vector<std::string> Split(absl::string_view text, bool at_text_start) const;

  // Whether the words have every byte of the text, or the replacement that a step has made for it,
  // which is not shorter.
  bool keeps_all() const { return keeps_all_; }

  // Whether every word that has this character of the text has it unchanged, and no such word gets
  // lost.
  bool Keeps(char c) const { return keeps_all_ && !(c == ' ' && replaces_space_); }

  // Words are written in the byte alphabet (byte_level.h).
  bool byte_level() const { return byte_level_; }

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prepend { kFirst, kAlways };
  struct SplitStep {
    Regex regex;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;  // the behavior applies to the gaps between matches
  };
  struct PrefixStep {  // puts `mark` before a word that does not start with it
    std::string mark;
    Prepend prepend = Prepend::kAlways;
  };
  struct ReplaceSpaceStep {
    std::string replacement;
  };
  struct ByteAlphabetStep {};
  using Step = std::variant<SplitStep, PrefixStep, ReplaceSpaceStep, ByteAlphabetStep>;
  using Words = std::vector<std::string>;

  absl::Status AddSteps(const nlohmann::json& json, int depth);
  absl::Status AddSplit(const nlohmann::json& json);
  absl::Status AddByteLevel(const nlohmann::json& json);
  absl::Status AddMetaspace(const nlohmann::json& json);
  absl::Status AddRegex(const std::string& pattern, bool literal, Behavior behavior, bool invert);
  static void Cut(const SplitStep& step, absl::string_view word, Words* words);

  std::vector<Step> steps_;
  bool byte_level_ = false, keeps_all_ = true, replaces_space_ = false;
};

}  // namespace coppice::tokenizer
