// The syntax tree of a chat template: what the parser makes and the renderer walks. Plain data,
// never changed after parsing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/chat_template/value.h"

namespace coppice::tokenizer::jinja {

enum class ExpressionKind {
  kConstant,     // value
  kName,         // name
  kList,         // parts
  kTuple,        // parts
  kDict,         // parts: key, value, key, value, ...
  kAttribute,    // parts[0].name
  kItem,         // parts[0][parts[1]]
  kSlice,        // parts[0][parts[1]:parts[2]:parts[3]], nullptr where absent
  kCall,         // parts[0](parts[1], ..., named)
  kFilter,       // parts[0] | name(parts[1], ..., named)
  kTest,         // parts[0] is name(parts[1], ...)
  kNot,          // not parts[0]
  kNegate,       // -parts[0]
  kBinary,       // parts[0] operation parts[1]
  kConcat,       // parts[0] ~ parts[1] ~ ...
  kCompare,      // parts[0] operations[0] parts[1] operations[1] ...
  kAnd,          // parts[0] and parts[1] and ...
  kOr,           // parts[0] or parts[1] or ...
  kConditional,  // parts[0] if parts[1] else parts[2], which may be nullptr
};

enum class Operation {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kUnequal,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 0;
  int depth = 1;  // levels of expressions, this one included
  std::string name;
  Value value;
  std::vector<std::unique_ptr<Expression>> parts;
  std::vector<std::pair<std::string, std::unique_ptr<Expression>>> named;  // arguments by name
  std::vector<Operation> operations;
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind {
  kText,      // text
  kOutput,    // {{ expression }}
  kIf,        // branches
  kFor,       // for names in expression if condition: body, else: other
  kSet,       // set names = expression; with a second name in `attribute`: names[0].attribute
  kSetBlock,  // set names[0] to the text of body, piped through the filters of expression
  kMacro,     // macro text(names): body; defaults of the last parameters
  kBreak,
  kContinue,
  kBlock,  // body alone (generation)
};

struct Branch {
  ExpressionPtr condition;  // nullptr: else
  Block body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  std::vector<std::string> names;
  std::string attribute;
  ExpressionPtr expression, condition;
  std::vector<ExpressionPtr> defaults;
  std::vector<Branch> branches;
  Block body, other;
};

}  // namespace coppice::tokenizer::jinja
