// The operands of expressions: constants, names, lists, items, calls.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/expression_parser.h"
#include "tokenizer/chat_template/parser.h"

namespace coppice::tokenizer::jinja {

ExpressionPtr ExpressionParser::ParseUnary(bool with_filters) {
  const int line = cursor_.line();
  ExpressionPtr value;
  if (cursor_.IsOperator("-") || cursor_.IsOperator("+")) {
    const bool negates = cursor_.Next().text == "-";
    if (++nesting_ > kMaxExpressionDepth)
      cursor_.Fail(line, absl::StrCat("an expression is nested deeper than ", kMaxExpressionDepth,
                                      " levels"));
    value =
        cursor_.ok() ? ParseUnary(/*with_filters=*/false) : Make(ExpressionKind::kConstant, line);
    --nesting_;
    ExpressionPtr made = Make(negates ? ExpressionKind::kNegate : ExpressionKind::kPositive, line);
    Add(made.get(), std::move(value));
    value = std::move(made);
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
    read_.insert(token.text);
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
      ExpressionPtr& spread = cursor_.IsOperator("*") ? call->spread : call->spread_named;
      if (spread != nullptr) cursor_.Unexpected("an argument");
      cursor_.Next();
      spread = Parse();
      call->depth = std::max(call->depth, 1 + spread->depth);
    } else if (cursor_.Peek().kind == TokenKind::kName && cursor_.IsOperator("=", 1)) {
      const std::string name = cursor_.Next().text;
      cursor_.Next();
      ExpressionPtr value = Parse();
      call->depth = std::max(call->depth, 1 + value->depth);
      argument_names_.insert(name);
      call->named.emplace_back(name, std::move(value));
    } else {
      if (!call->named.empty() || call->spread != nullptr || call->spread_named != nullptr)
        cursor_.Unexpected("an argument by name");
      Add(call, Parse());
    }
    if (!cursor_.SkipOperator(",")) break;
  }
  cursor_.ExpectOperator(")");
}

// Notes a function or method that does not exist.
void ExpressionParser::CheckCallee(const Expression& callee) {
  if (callee.kind == ExpressionKind::kName) {
    unknown_.push_back({callee.line, callee.name, true,
                        absl::StrCat("the function ", callee.name, "() is not supported")});
  } else if (callee.kind == ExpressionKind::kAttribute && !IsMethod(callee.name)) {
    const std::string why = absl::StrCat("the method ", callee.name, "() is not supported");
    if (IsUnservedMethod(callee.name)) {
      cursor_.Fail(callee.line, why);
    } else {
      unknown_.push_back({callee.line, callee.name, true, why});
    }
  }
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr call = Make(ExpressionKind::kCall, cursor_.line());
  CheckCallee(*callee);
  Add(call.get(), std::move(callee));
  ParseArguments(call.get());
  return call;
}

ExpressionPtr ExpressionParser::ParseTargetItem(bool with_attribute) {
  const int line = cursor_.line();
  if (++nesting_ > kMaxExpressionDepth) cursor_.Fail(line, "a target is nested too deeply");
  ExpressionPtr target;
  if (cursor_.SkipOperator("(")) {
    target = ParseTarget(with_attribute);
    cursor_.ExpectOperator(")");
  } else {
    target = Make(ExpressionKind::kName, line, cursor_.ExpectName("a name"));
    if (with_attribute && cursor_.SkipOperator(".")) {
      ExpressionPtr attribute =
          Make(ExpressionKind::kAttribute, line, cursor_.ExpectName("a name after '.'"));
      Add(attribute.get(), std::move(target));
      target = std::move(attribute);
    }
  }
  --nesting_;
  return target;
}

ExpressionPtr ExpressionParser::ParseTarget(bool with_attribute) {
  const int line = cursor_.line();
  ExpressionPtr first = ParseTargetItem(with_attribute);
  if (!cursor_.IsOperator(",")) return first;
  ExpressionPtr tuple = Make(ExpressionKind::kTuple, line);
  Add(tuple.get(), std::move(first));
  while (cursor_.SkipOperator(",")) {
    if (cursor_.Peek().kind != TokenKind::kName && !cursor_.IsOperator("(")) break;
    if (cursor_.IsName("in")) break;  // after a comma at the end
    Add(tuple.get(), ParseTargetItem(with_attribute));
  }
  return tuple;
}

}  // namespace coppice::tokenizer::jinja
