// The expressions of a chat template, with the precedence of Jinja2: operators, filters and tests
// in expression_parser.cc, operands in operand_parser.cc. Used by the parser of the statements.
// Errors go to the cursor.
#pragma once

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

  // The functions that are called by name, with their lines.
  const std::vector<std::pair<std::string, int>>& called() const { return called_; }

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
  void ParseArguments(Expression* call);
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
  std::vector<std::pair<std::string, int>> called_;
};

}  // namespace coppice::tokenizer::jinja
