// The expressions of a chat template, with the precedence of Jinja2: operators, filters and tests
// in expression_parser.cc, operands in operand_parser.cc. Used by the parser of the statements.
// Errors go to the cursor.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/chat_template/syntax.h"
#include "tokenizer/chat_template/token_cursor.h"

namespace coppice::tokenizer::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenCursor* cursor) : cursor_(*cursor) {}

  // Never nullptr.
  ExpressionPtr Parse();
  // Without "x if y else z" outside of brackets.
  ExpressionPtr ParseWithoutConditional();
  // One expression, or several with commas: a tuple.
  ExpressionPtr ParseTuple(bool with_conditional);
  // The filters after a value, each with its "|".
  ExpressionPtr ParseFilters(ExpressionPtr input);
  // The same, where the first filter has no "|".
  ExpressionPtr ParseFirstFilter(ExpressionPtr input);

  // The target of an assignment.
  ExpressionPtr ParseTarget(bool with_attribute);

  // A filter, test, method or function that does not exist. Jinja2 finds out when it is reached, and
  // so do templates that use it under a condition. Elsewhere it is refused at the start.
  struct Unknown {
    int line = 0;
    std::string function;  // the name of a function or method, which the template may define
    bool at_call = false;  // a method or function: it is no error before the call
    std::string why;
  };
  const std::vector<Unknown>& unknown() const { return unknown_; }
  // What was added since there were so many is used under a condition.
  void ForgiveUnknown(size_t since) { unknown_.resize(since); }
  void ForgiveUnknownCalls(size_t since);

  // The names of arguments; some of them may be attributes of a namespace.
  const std::set<std::string>& argument_names() const { return argument_names_; }

  // The names that were read since the last call of this; for macros.
  bool Reads(absl::string_view name) const { return read_.count(std::string(name)) > 0; }
  std::set<std::string>& read() { return read_; }

 private:
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseName();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr base);
  ExpressionPtr ParseSubscript(ExpressionPtr base);
  ExpressionPtr ParseCall(ExpressionPtr callee);
  ExpressionPtr ParseTest(ExpressionPtr input);
  ExpressionPtr ParseFilter(ExpressionPtr input);
  void ParseArguments(Expression* call);
  ExpressionPtr ParseTargetItem(bool with_attribute);
  void CheckCallee(const Expression& callee);
  void CheckNestedName(const Expression& filter);

  using Part = ExpressionPtr (ExpressionParser::*)();
  // Part, or parts joined by one of the operators, which group from the left.
  ExpressionPtr ParseBinary(Part part, std::vector<std::pair<absl::string_view, Operation>> which);
  ExpressionPtr ParseLogical(Part part, absl::string_view word, ExpressionKind kind);

  ExpressionPtr Make(ExpressionKind kind, int line, std::string name = "");
  // Adds a part and its depth to the parent, and refuses what is too deep.
  void Add(Expression* parent, ExpressionPtr part);

  TokenCursor& cursor_;
  int nesting_ = 0;
  std::vector<Unknown> unknown_;
  std::set<std::string> read_, argument_names_;
};

}  // namespace coppice::tokenizer::jinja
