// Which texts a grammar has, by derivatives of its expressions: a second implementation, with
// nothing of grammar/automaton.h. For small grammars whose rules all have texts. Used by tests of
// grammar/ and decoding/.
#pragma once

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "grammar/expression.h"

namespace coppice::test {

class Language {
 public:
  explicit Language(grammar::Grammar grammar) : rules_(std::move(grammar.rules)) {}
  explicit Language(grammar::Part whole) : rules_{std::move(whole)} {}

  // Some text of the language begins so.
  bool Begins(const std::string& text) const { return HasTexts(*After(text)); }
  bool Has(const std::string& text) const { return HasEmpty(*After(text)); }

 private:
  using Expression = grammar::Expression;
  using Kind = Expression::Kind;
  using Part = grammar::Part;

  // What may follow the text.
  Part After(const std::string& text) const {
    if (text.empty()) return rules_[0];
    const auto known = after_.find(text);
    if (known != after_.end()) return known->second;
    Part rest = After(text.substr(0, text.size() - 1));
    rest = Derivative(*rest, static_cast<uint8_t>(text.back()));
    return after_.emplace(text, rest).first->second;
  }
  bool HasEmpty(const Expression& e) const {
    const auto has = [this](const Part& part) { return HasEmpty(*part); };
    switch (e.kind) {
      case Kind::kByte:
        return false;
      case Kind::kSequence:
        return std::all_of(e.parts.begin(), e.parts.end(), has);
      case Kind::kChoice:
        return std::any_of(e.parts.begin(), e.parts.end(), has);
      case Kind::kRepeat:
        return e.least == 0 || HasEmpty(*e.parts[0]);
      case Kind::kRule:
        return HasEmpty(*rules_[e.rule]);
    }
    return false;
  }
  bool HasTexts(const Expression& e) const {
    const auto has = [this](const Part& part) { return HasTexts(*part); };
    switch (e.kind) {
      case Kind::kByte:
        return !e.bytes.empty();
      case Kind::kSequence:
        return std::all_of(e.parts.begin(), e.parts.end(), has);
      case Kind::kChoice:
        return std::any_of(e.parts.begin(), e.parts.end(), has);
      case Kind::kRepeat:
        return e.least == 0 || HasTexts(*e.parts[0]);
      case Kind::kRule:
        return true;
    }
    return false;
  }
  Part Derivative(const Expression& e, uint8_t byte) const {
    std::vector<Part> choices;
    const auto add = [&](std::vector<Part> parts) {
      const Part all = grammar::Sequence(std::move(parts));
      if (HasTexts(*all)) choices.push_back(all);
    };
    switch (e.kind) {
      case Kind::kByte:
        for (const auto& [first, last] : e.bytes) {
          if (byte >= first && byte <= last) return grammar::Sequence({});
        }
        break;
      case Kind::kSequence:
        for (size_t i = 0; i < e.parts.size(); ++i) {
          std::vector<Part> parts(e.parts.begin() + static_cast<int>(i), e.parts.end());
          parts[0] = Derivative(*parts[0], byte);
          add(std::move(parts));
          if (!HasEmpty(*e.parts[i])) break;
        }
        break;
      case Kind::kChoice:
        for (const Part& part : e.parts) add({Derivative(*part, byte)});
        break;
      case Kind::kRepeat:
        if (e.most != 0) {
          add({Derivative(*e.parts[0], byte),
               grammar::Repeat(e.parts[0], std::max(0, e.least - 1),
                               e.most == Expression::kNoMost ? e.most : e.most - 1)});
        }
        break;
      case Kind::kRule:
        return Derivative(*rules_[e.rule], byte);
    }
    return grammar::Choice(std::move(choices));
  }

  std::vector<Part> rules_;
  mutable std::unordered_map<std::string, Part> after_;
};

// A pseudo-random expression over the bytes a, b and c. Every one has texts.
inline grammar::Part RandomExpression(uint64_t seed, int depth) {
  const uint64_t random = Finalize(seed);
  const auto below = [&](uint64_t which) { return RandomExpression(random + which, depth - 1); };
  const uint64_t kind = depth == 0 ? random % 3 : 3 + random % 7;
  switch (kind) {
    case 0:
      return grammar::Literal(std::string(1, static_cast<char>('a' + random / 16 % 3)));
    case 1:
      return grammar::Literal(std::string(1, static_cast<char>('a' + random / 16 % 3)) +
                              static_cast<char>('a' + random / 64 % 3));
    case 2:
      return grammar::Character({{'a' + random / 16 % 2, 'c'}});
    case 3:
    case 4:
      return grammar::Sequence({below(1), below(2)});
    case 5:
    case 6:
      return grammar::Choice({below(1), below(2), below(3)});
    case 7:
      return grammar::Repeat(below(1), 0, grammar::Expression::kNoMost);
    case 8:
      return grammar::Repeat(below(1), 1, 1 + static_cast<int>(random / 16 % 3));
    default:
      return grammar::Optional(below(1));
  }
}

}  // namespace coppice::test
