// A language of texts as a tree of expressions over bytes, with rules that may refer to each other.
// Regular expressions, grammars and JSON schemas are read into it; grammar/automaton.h makes an
// automaton of it. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::grammar {

struct Expression;
using Part = std::shared_ptr<const Expression>;

// Nesting that a reader of expressions accepts; more is an error of the text.
inline constexpr int kMostNested = 200;
// Counts of a repetition in a text that is read; more is an error of the text.
inline constexpr int kMostRepeated = 10'000;

struct Expression {
  enum class Kind {
    kByte,      // one byte of the ranges
    kSequence,  // the parts one after the other; none: the empty text
    kChoice,    // one of the parts; none: no text at all
    kRepeat,    // parts[0], `least` to `most` times
    kRule,      // what the named rule accepts
    kAnyText,   // any bytes, also none, without the texts that are excluded
  };
  static constexpr int kNoMost = -1;

  Kind kind = Kind::kSequence;
  std::vector<std::pair<uint8_t, uint8_t>> bytes;  // first and last of each range
  std::vector<Part> parts;
  int least = 0;
  int most = kNoMost;
  int rule = 0;
  // kAnyText: what it does not have inside, and how it does not begin. None is empty.
  std::vector<std::string> without, not_begins;
  // kByte: also allowed if no token has this byte alone. For bytes that are only read as parts of
  // tokens, so that a text cannot get stuck before them.
  bool in_tokens = false;
};

// What a special token has in a text that an automaton reads: this byte, which no UTF-8 text has, and
// its name.
inline constexpr char kSpecialMark = '\xff';

// How many expressions the part has, with each of its repetitions written out as often as it must or
// may occur. At most kMostExpressions is told. The part refers to no rule.
inline constexpr int64_t kMostExpressions = int64_t{1} << 40;
int64_t CountExpressions(const Expression& part);

using CodePoints = std::vector<std::pair<uint32_t, uint32_t>>;  // first and last of each range

Part Literal(absl::string_view bytes);
Part SpecialToken(absl::string_view name);
// Any text, special tokens included, that has none of the texts `without` inside and begins with none
// of `not_begins`. Bytes of all of them together: at most kMostExcluded.
inline constexpr size_t kMostExcluded = 8192;
Part AnyText(std::vector<std::string> without, std::vector<std::string> not_begins = {});
Part Sequence(std::vector<Part> parts);
Part Choice(std::vector<Part> parts);
// most: Expression::kNoMost: no limit.
Part Repeat(Part part, int least, int most);
Part Optional(Part part);
Part Rule(int rule);
// One character of the ranges, in UTF-8. Surrogates are left out. Ranges may overlap.
Part Character(CodePoints ranges);
// One character that is in none of the ranges.
Part CharacterNot(CodePoints ranges);
// The characters that are in none of the ranges: ascending, not overlapping.
CodePoints Others(CodePoints ranges);

// Rule 0 is the whole text.
struct Grammar {
  std::vector<Part> rules;
  std::vector<std::string> names;  // names of the rules, for errors
};

}  // namespace coppice::grammar
