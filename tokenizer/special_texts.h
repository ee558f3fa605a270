// Where special tokens could come out of a text of a message, so that the text can be marked as
// text there. Made by tokenizers at start-up, used by FindSpecial. Immutable and thread-safe.
#pragma once

#include <bitset>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

class SpecialTexts {
 public:
  static constexpr size_t kMostBytes = 512;

  SpecialTexts() = default;
  // texts: those of the special tokens. InvalidArgument: one has more than kMostBytes.
  static absl::StatusOr<SpecialTexts> Make(const std::vector<std::string>& texts);

  // Ascending bytes of the text so that no special token comes out of it, whatever is written
  // before and after it, if none contains one of these bytes: where one is written, where one
  // begins that the end of the text cuts off, and 0 if the text begins inside of one. Letters of
  // ASCII count in both cases, since a template can change them.
  std::vector<size_t> Find(absl::string_view text) const;

 private:
  bool WrittenAtStart(absl::string_view text) const;
  bool BeginsInside(absl::string_view text) const;

  // In small letters and sorted.
  std::vector<std::string> texts_;
  std::vector<std::string> shortest_;  // those that begin with no other
  std::vector<std::string> rests_;     // what follows a first part of a text
  size_t longest_ = 0;
  std::bitset<256> first_, last_;  // bytes of the texts
};

}  // namespace coppice::tokenizer
