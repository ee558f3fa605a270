// The grammar of JSON texts in parts, from which the reader of schemas builds its rules. It has
// bounds where a text could continue without adding information: white space is nothing, a space,
// or a line end and up to 20 spaces and tabs, and stands after : and , and inside brackets; numbers
// have up to 16 digits before the point, 16 after it and 2 in an exponent. Not thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "grammar/adopt.h"
#include "grammar/expression.h"

namespace coppice::grammar {

class JsonRules {
 public:
  // How true, false and null are written. All else is the same in both.
  enum class Notation { kJson, kPython };
  // Where white space stands. kSingle: a space after : and , and none inside of brackets, as Python
  // and chat templates write JSON.
  enum class Blanks { kAny, kSingle };
  explicit JsonRules(Notation notation = Notation::kJson, Blanks blanks = Blanks::kAny)
      : notation_(notation), blanks_(blanks) {}

  // Adds a rule, which must be set before the grammar is taken. The first rule is the whole text.
  int Add(std::string name);
  void Set(int rule, Part part) { grammar_.rules[rule] = std::move(part); }
  const Part& part(int rule) const { return grammar_.rules[rule]; }

  // The texts of rule 0 of another grammar, whose rules are added.
  Part Adopt(Grammar grammar) { return AdoptRules(std::move(grammar), &grammar_); }

  size_t size() const { return grammar_.rules.size(); }

  Part Space();  // inside of brackets
  Part Colon();  // with the white space that follows it
  Part Comma();
  // One character of a string, plain or as an escape. \u escapes of surrogates are only pairs.
  Part StringCharacter();
  Part StringOf(int least, int most);  // least, most: characters; most may be kNoMost
  Part Number();
  Part Integer();
  Part Constant(const nlohmann::ordered_json& value);  // this value
  Part Value();                                        // any value
  Part Object();                                       // any object; a key may occur twice
  Part Array();                                        // any array

  struct Member {
    std::string key;
    bool required = false;
    Part value;
  };
  // Further members. key: the text of their keys after the first quote; nullopt: each that is none
  // of the members before, written without escapes.
  struct Other {
    std::optional<Part> key;
    Part value;
  };
  // The members in this order, then any number of the others, whose keys may occur twice.
  Part ObjectOf(absl::string_view name, const std::vector<Member>& members,
                const std::vector<Other>& others);
  // A member. key: with its quotes.
  Part MemberOf(const Part& key, const Part& value);
  Part ObjectOfAny(const Part& member, int least, int most);
  // The first items, then `other`; least to most in all. Requires least >= 0, and most >= least or
  // kNoMost.
  Part ArrayOf(absl::string_view name, const std::vector<Part>& first, const Part& other, int least,
               int most);

  Grammar Take() && { return std::move(grammar_); }

 private:
  // The rule with this name, which is made only once.
  template <typename MakePart>
  Part Once(std::optional<int>* rule, absl::string_view name, MakePart make);
  // least to most items with commas between them, and the closing bracket.
  Part Listed(const Part& item, absl::string_view end, int least, int most);
  // The rest of a key after its first quote, including the last quote, if it is none of the
  // members' keys.
  Part OtherKey(absl::string_view name, const std::vector<Member>& members);

  const Notation notation_;
  const Blanks blanks_;
  Grammar grammar_;
  std::optional<int> space_, character_, number_, integer_, value_, object_, array_;
};

// One character of the ranges inside a JSON string: itself, or its short escape. Control characters
// without a short escape are left out.
Part JsonCharacter(CodePoints ranges);

}  // namespace coppice::grammar
