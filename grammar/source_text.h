// A text that a reader reads character by character. Used by the readers of regular expressions and
// grammars. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

class SourceText {
 public:
  explicit SourceText(absl::string_view text) : text_(text) {}

  bool done() const { return at_ == text_.size(); }
  size_t at() const { return at_; }  // position in bytes
  void Back(size_t at) { at_ = at; }
  int Line(size_t at) const;  // line number, counted from 1

  char Peek(size_t ahead = 0) const;  // '\0' beyond the end
  bool Sees(absl::string_view word) const;
  bool Take(absl::string_view word);  // true: the word stood here and is passed
  // For errors: the character here in quotes, or "the end".
  std::string Seen() const;

  // Each function moves past what it returns. nullopt: it does not stand here.
  std::optional<uint32_t> Character();  // the next character of valid UTF-8
  std::optional<uint32_t> Hex(int digits);
  // The characters after \u: four digits, or a pair of surrogates as \uHHHH\uHHHH.
  std::optional<uint32_t> Utf16();
  // A decimal number. Numbers above kMostRepeated are returned as kMostRepeated + 1.
  std::optional<int> Count();

 private:
  absl::string_view text_;
  size_t at_ = 0;
};

bool IsSurrogate(uint32_t code_point);

// The expressions of character sets. Equal sets share one expression, so that a text of many
// classes needs no more memory than a text of few.
class CharacterParts {
 public:
  explicit CharacterParts(Part (*make)(CodePoints ranges)) : make_(make) {}
  // nullptr: there are more different sets than are kept.
  Part Of(const CodePoints& ranges);

 private:
  Part (*make_)(CodePoints ranges);
  absl::flat_hash_map<CodePoints, Part> known_;
};

// How often something is repeated.
struct Counts {
  int least = 0;
  int most = 0;
  // True: the counts are too large or in the wrong order.
  bool wrong() const;
};
// {n}, {n,}, {n,m}, {,m}. nullopt: none of these; then the position does not change.
std::optional<Counts> TakeCounts(SourceText* text);

}  // namespace coppice::grammar
