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
  kCall,         // parts[0](parts[1], ..., named, *spread, **spread_named)
  kFilter,       // parts[0] | name(arguments as of a call)
  kTest,         // parts[0] is name(arguments as of a call)
  kNot,          // not parts[0]
  kNegate,       // -parts[0]
  kPositive,     // +parts[0]
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
  std::unique_ptr<Expression> spread, spread_named;                        // *list, **dictionary
  std::vector<Operation> operations;
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind {
  kText,         // text
  kOutput,       // {{ expression }}
  kIf,           // branches
  kFor,          // for target in expression if condition: body, else: other
  kSet,          // set target = expression
  kSetBlock,     // set target to the text of body, piped through the filters of expression
  kFilterBlock,  // the text of body, piped through the filters of expression
  kWith,         // assignments, then body, in a scope of their own
  kMacro,        // macro text(names): body; defaults of the last parameters
  kCallBlock,    // {{ expression }}, a call, with the macro caller(names): body
  kBreak,
  kContinue,
  kBlock,  // body alone, in a scope of its own (generation)
};

struct Branch {
  ExpressionPtr condition;  // nullptr: else
  Block body;
};

// A target of an assignment is a name, a tuple of targets, or an attribute of a namespace.
struct Assignment {
  ExpressionPtr target, value;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  ExpressionPtr target, expression, condition;
  bool recursive = false;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;  // of a macro: its body
  std::vector<Assignment> assignments;
  std::vector<Branch> branches;
  Block body, other;
};

}  // namespace coppice::tokenizer::jinja
