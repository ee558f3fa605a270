// Which texts a grammar has, by trying its expressions on each text: a second implementation, with
// nothing of grammar/automaton.h. For small grammars whose rules all have texts. Used by tests of
// grammar/ and decoding/.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/expression.h"
#include "sampling/rng.h"

namespace coppice::test {

class Language {
 public:
  explicit Language(grammar::Grammar grammar) : rules_(std::move(grammar.rules)) {}
  explicit Language(grammar::Part whole) : rules_{std::move(whole)} {}

  // Some text of the language begins so.
  bool Begins(const std::string& text) const { return Find(text).begins; }
  bool Has(const std::string& text) const { return Find(text).has; }

 private:
  using Expression = grammar::Expression;
  using Kind = Expression::Kind;
  using Part = grammar::Part;
  struct Found {
    bool begins = false, has = false;
  };
  // Of an expression from one place of the text on.
  struct Match {
    std::set<size_t> ends;  // where a text of the expression may end
    bool open = false;      // the rest of the text is the beginning of one, or is one
  };

  Found Find(const std::string& text) const {
    const auto known = found_.find(text);
    if (known != found_.end()) return known->second;
    const Match match = At(*rules_[0], text, 0);
    const Found found{match.open, match.ends.count(text.size()) > 0};
    return found_.emplace(text, found).first->second;
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
      case Kind::kAnyText:
        return true;
    }
    return false;
  }
  // The part after every one of the places.
  Match After(const Part& part, const std::string& text, const std::set<size_t>& places) const {
    Match all;
    for (const size_t place : places) {
      const Match match = At(*part, text, place);
      all.ends.insert(match.ends.begin(), match.ends.end());
      all.open = all.open || match.open;
    }
    return all;
  }
  Match At(const Expression& e, const std::string& text, size_t begin) const {
    Match match;
    switch (e.kind) {
      case Kind::kByte:
        match.open = begin == text.size() && !e.bytes.empty();
        for (const auto& [first, last] : e.bytes) {
          if (begin == text.size()) break;
          const auto byte = static_cast<uint8_t>(text[begin]);
          if (byte >= first && byte <= last) match.ends = {begin + 1};
        }
        break;
      case Kind::kSequence:
        match.ends = {begin};
        for (size_t i = 0; i < e.parts.size(); ++i) {
          const bool can_end = std::all_of(e.parts.begin() + static_cast<int>(i) + 1, e.parts.end(),
                                           [this](const Part& part) { return HasTexts(*part); });
          Match next = After(e.parts[i], text, match.ends);
          match.ends = std::move(next.ends);
          match.open = match.open || (next.open && can_end);
        }
        break;
      case Kind::kChoice:
        for (const Part& part : e.parts) {
          const Match one = At(*part, text, begin);
          match.ends.insert(one.ends.begin(), one.ends.end());
          match.open = match.open || one.open;
        }
        break;
      case Kind::kRepeat: {
        std::set<size_t> places = {begin};
        const size_t last =
            e.most == Expression::kNoMost ? e.least + text.size() + 1 : static_cast<size_t>(e.most);
        for (size_t times = 0;; ++times) {
          if (times >= static_cast<size_t>(e.least))
            match.ends.insert(places.begin(), places.end());
          if (times == last || places.empty()) break;
          Match next = After(e.parts[0], text, places);
          match.open = match.open || next.open;
          places = std::move(next.ends);
        }
        break;
      }
      case Kind::kRule:
        return At(*rules_[e.rule], text, begin);
      case Kind::kAnyText:
        for (size_t end = begin; end <= text.size(); ++end) {
          const std::string one = text.substr(begin, end - begin);
          const auto inside = [&one](const std::string& t) { return one.find(t) != one.npos; };
          const auto first = [&one](const std::string& t) { return one.rfind(t, 0) == 0; };
          if (std::any_of(e.without.begin(), e.without.end(), inside) ||
              std::any_of(e.not_begins.begin(), e.not_begins.end(), first))
            break;
          match.ends.insert(end);
        }
        break;
    }
    match.open = match.open || match.ends.count(text.size()) > 0;
    return match;
  }

  std::vector<Part> rules_;
  mutable std::unordered_map<std::string, Found> found_;
};

// A pseudo-random expression over the bytes a, b and c. Every one has texts.
inline grammar::Part RandomExpression(uint64_t seed, int depth) {
  const uint64_t random = sampling::Finalize(seed);
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
