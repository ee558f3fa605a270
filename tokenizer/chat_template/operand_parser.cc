// The operands of expressions: constants, names, lists, items, calls.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/expression_parser.h"

namespace coppice::tokenizer::jinja {

ExpressionPtr ExpressionParser::ParseUnary(bool with_filters) {
  const int line = cursor_.line();
  ExpressionPtr value;
  if (cursor_.IsOperator("-") || cursor_.IsOperator("+")) {
    const bool negates = cursor_.Next().text == "-";
    if (cursor_.IsOperator("-") || cursor_.IsOperator("+"))
      cursor_.Fail(line, "several signs before a value are not supported");
    value = ParseUnary(/*with_filters=*/false);
    if (negates) {
      ExpressionPtr negated = Make(ExpressionKind::kNegate, line);
      Add(negated.get(), std::move(value));
      value = std::move(negated);
    }
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(std::move(value));
  while (with_filters) {
    if (cursor_.IsOperator("|")) {
      value = ParseFilters(std::move(value));
    } else if (cursor_.IsName("is")) {
      value = ParseTest(std::move(value));
    } else {
      break;
    }
  }
  return value;
}

ExpressionPtr ExpressionParser::ParsePrimary() {
  const int line = cursor_.line();
  ExpressionPtr constant = Make(ExpressionKind::kConstant, line);
  switch (cursor_.Peek().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kInteger:
      constant->value = Value(cursor_.Next().integer);
      return constant;
    case TokenKind::kFloat:
      constant->value = Value(cursor_.Next().number);
      return constant;
    case TokenKind::kString: {
      std::string text;
      while (cursor_.Peek().kind == TokenKind::kString) text += cursor_.Next().text;
      constant->value = Value::String(std::move(text));
      return constant;
    }
    default:
      break;
  }
  if (cursor_.SkipOperator("(")) {
    if (cursor_.SkipOperator(")")) return Make(ExpressionKind::kTuple, line);
    ExpressionPtr inner = ParseTuple(/*with_conditional=*/true);
    cursor_.ExpectOperator(")");
    return inner;
  }
  if (cursor_.SkipOperator("[")) return ParseList();
  if (cursor_.SkipOperator("{")) return ParseDict();
  cursor_.Unexpected("an expression");
  return constant;
}

ExpressionPtr ExpressionParser::ParseName() {
  const Token token = cursor_.Next();
  ExpressionPtr constant = Make(ExpressionKind::kConstant, token.line);
  if (token.text == "true" || token.text == "True") {
    constant->value = Value(true);
  } else if (token.text == "false" || token.text == "False") {
    constant->value = Value(false);
  } else if (token.text == "none" || token.text == "None") {
    constant->value = Value(nullptr);
  } else {
    return Make(ExpressionKind::kName, token.line, token.text);
  }
  return constant;
}

ExpressionPtr ExpressionParser::ParseList() {
  ExpressionPtr list = Make(ExpressionKind::kList, cursor_.line());
  while (cursor_.ok() && !cursor_.IsOperator("]")) {
    Add(list.get(), Parse());
    if (!cursor_.SkipOperator(",")) break;
  }
  cursor_.ExpectOperator("]");
  return list;
}

ExpressionPtr ExpressionParser::ParseDict() {
  ExpressionPtr dict = Make(ExpressionKind::kDict, cursor_.line());
  while (cursor_.ok() && !cursor_.IsOperator("}")) {
    Add(dict.get(), Parse());
    cursor_.ExpectOperator(":");
    Add(dict.get(), Parse());
    if (!cursor_.SkipOperator(",")) break;
  }
  cursor_.ExpectOperator("}");
  return dict;
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr base) {
  while (cursor_.ok()) {
    if (cursor_.SkipOperator("[")) {
      base = ParseSubscript(std::move(base));
    } else if (cursor_.IsOperator("(")) {
      base = ParseCall(std::move(base));
    } else if (cursor_.IsOperator(".")) {
      const int line = cursor_.Next().line;
      if (cursor_.Peek().kind == TokenKind::kInteger) {
        ExpressionPtr item = Make(ExpressionKind::kItem, line);
        ExpressionPtr index = Make(ExpressionKind::kConstant, line);
        index->value = Value(cursor_.Next().integer);
        Add(item.get(), std::move(base));
        Add(item.get(), std::move(index));
        base = std::move(item);
      } else {
        ExpressionPtr attribute =
            Make(ExpressionKind::kAttribute, line, cursor_.ExpectName("a name after '.'"));
        Add(attribute.get(), std::move(base));
        base = std::move(attribute);
      }
    } else {
      break;
    }
  }
  return base;
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr base) {
  const int line = cursor_.line();
  ExpressionPtr index = cursor_.IsOperator(":") ? nullptr : Parse();
  if (!cursor_.IsOperator(":")) {
    ExpressionPtr item = Make(ExpressionKind::kItem, line);
    Add(item.get(), std::move(base));
    Add(item.get(), std::move(index));
    cursor_.ExpectOperator("]");
    return item;
  }
  ExpressionPtr slice = Make(ExpressionKind::kSlice, line);
  Add(slice.get(), std::move(base));
  Add(slice.get(), std::move(index));
  for (int bound = 0; bound < 2; ++bound) {
    const bool given =
        cursor_.SkipOperator(":") && !cursor_.IsOperator(":") && !cursor_.IsOperator("]");
    Add(slice.get(), given ? Parse() : nullptr);
  }
  cursor_.ExpectOperator("]");
  return slice;
}

void ExpressionParser::ParseArguments(Expression* call) {
  cursor_.ExpectOperator("(");
  while (cursor_.ok() && !cursor_.IsOperator(")")) {
    if (cursor_.IsOperator("*") || cursor_.IsOperator("**")) {
      cursor_.Fail(cursor_.line(), "arguments with * are not supported");
    } else if (cursor_.Peek().kind == TokenKind::kName && cursor_.IsOperator("=", 1)) {
      const std::string name = cursor_.Next().text;
      cursor_.Next();
      ExpressionPtr value = Parse();
      call->depth = std::max(call->depth, 1 + value->depth);
      call->named.emplace_back(name, std::move(value));
    } else {
      if (!call->named.empty()) cursor_.Unexpected("an argument by name");
      Add(call, Parse());
    }
    if (!cursor_.SkipOperator(",")) break;
  }
  cursor_.ExpectOperator(")");
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr call = Make(ExpressionKind::kCall, cursor_.line());
  if (callee->kind == ExpressionKind::kName) {
    called_.emplace_back(callee->name, callee->line);
  } else if (callee->kind != ExpressionKind::kAttribute) {
    cursor_.Fail(callee->line, "only names and methods can be called");
  } else if (!IsMethod(callee->name)) {
    cursor_.Fail(callee->line, absl::StrCat("the method ", callee->name, "() is not supported"));
  }
  Add(call.get(), std::move(callee));
  ParseArguments(call.get());
  return call;
}

}  // namespace coppice::tokenizer::jinja
