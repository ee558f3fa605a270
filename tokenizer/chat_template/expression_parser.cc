#include "tokenizer/chat_template/expression_parser.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/parser.h"

namespace coppice::tokenizer::jinja {
namespace {

struct OperatorName {
  absl::string_view text;
  Operation operation;
};
constexpr OperatorName kComparisonOperators[] = {
    {"==", Operation::kEqual},     {"!=", Operation::kUnequal}, {"<", Operation::kLess},
    {"<=", Operation::kLessEqual}, {">", Operation::kGreater},  {">=", Operation::kGreaterEqual}};

}  // namespace

ExpressionPtr ExpressionParser::Make(ExpressionKind kind, int line, std::string name) {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = line;
  expression->name = std::move(name);
  return expression;
}

void ExpressionParser::Add(Expression* parent, ExpressionPtr part) {
  if (part != nullptr) parent->depth = std::max(parent->depth, 1 + part->depth);
  parent->parts.push_back(std::move(part));
  if (parent->depth > kMaxExpressionDepth)
    cursor_.Fail(parent->line, absl::StrCat("an expression is nested deeper than ",
                                            kMaxExpressionDepth, " levels"));
}

ExpressionPtr ExpressionParser::Parse() {
  // Each level of nesting is one call of this function, so the stack is bounded.
  if (++nesting_ > kMaxExpressionDepth) {
    cursor_.Fail(cursor_.line(), absl::StrCat("an expression is nested deeper than ",
                                              kMaxExpressionDepth, " levels"));
  }
  const size_t known = unknown_.size();
  ExpressionPtr value = cursor_.ok() ? ParseOr() : Make(ExpressionKind::kConstant, cursor_.line());
  while (cursor_.IsName("if")) {
    ExpressionPtr conditional = Make(ExpressionKind::kConditional, cursor_.Next().line);
    Add(conditional.get(), std::move(value));
    Add(conditional.get(), ParseOr());
    Add(conditional.get(), cursor_.SkipName("else") ? Parse() : nullptr);
    ForgiveUnknown(known);
    value = std::move(conditional);
  }
  --nesting_;
  return value;
}

ExpressionPtr ExpressionParser::ParseWithoutConditional() { return ParseOr(); }

ExpressionPtr ExpressionParser::ParseTuple(bool with_conditional) {
  const auto part = [&] { return with_conditional ? Parse() : ParseWithoutConditional(); };
  const int line = cursor_.line();
  ExpressionPtr first = part();
  if (!cursor_.IsOperator(",")) return first;
  ExpressionPtr tuple = Make(ExpressionKind::kTuple, line);
  Add(tuple.get(), std::move(first));
  while (cursor_.SkipOperator(",")) {
    const TokenKind next = cursor_.Peek().kind;
    if (cursor_.IsOperator(")") || next == TokenKind::kBlockEnd || next == TokenKind::kOutputEnd)
      break;
    Add(tuple.get(), part());
  }
  return tuple;
}

ExpressionPtr ExpressionParser::ParseLogical(Part part, absl::string_view word,
                                             ExpressionKind kind) {
  ExpressionPtr first = (this->*part)();
  if (!cursor_.IsName(word)) return first;
  ExpressionPtr all = Make(kind, first->line);
  Add(all.get(), std::move(first));
  const size_t known = unknown_.size();
  while (cursor_.SkipName(word)) Add(all.get(), (this->*part)());
  ForgiveUnknownCalls(known);
  return all;
}

ExpressionPtr ExpressionParser::ParseOr() {
  return ParseLogical(&ExpressionParser::ParseAnd, "or", ExpressionKind::kOr);
}

ExpressionPtr ExpressionParser::ParseAnd() {
  return ParseLogical(&ExpressionParser::ParseNot, "and", ExpressionKind::kAnd);
}

ExpressionPtr ExpressionParser::ParseNot() {
  int line = cursor_.line(), negations = 0;
  while (cursor_.SkipName("not")) ++negations;
  ExpressionPtr value = ParseCompare();
  for (; negations > 0; --negations) {
    ExpressionPtr negated = Make(ExpressionKind::kNot, line);
    Add(negated.get(), std::move(value));
    value = std::move(negated);
  }
  return value;
}

ExpressionPtr ExpressionParser::ParseCompare() {
  ExpressionPtr first = ParseSum();
  ExpressionPtr compare;
  while (true) {
    const auto* found =
        std::find_if(std::begin(kComparisonOperators), std::end(kComparisonOperators),
                     [this](const OperatorName& name) { return cursor_.IsOperator(name.text); });
    Operation operation = Operation::kIn;
    if (found != std::end(kComparisonOperators)) {
      operation = found->operation;
    } else if (cursor_.IsName("not") && cursor_.IsName("in", 1)) {
      cursor_.Next();
      operation = Operation::kNotIn;
    } else if (!cursor_.IsName("in")) {
      break;
    }
    const int line = cursor_.Next().line;
    if (compare == nullptr) {
      compare = Make(ExpressionKind::kCompare, line);
      Add(compare.get(), std::move(first));
    }
    compare->operations.push_back(operation);
    Add(compare.get(), ParseSum());
  }
  return compare == nullptr ? std::move(first) : std::move(compare);
}

ExpressionPtr ExpressionParser::ParseBinary(
    Part part, std::vector<std::pair<absl::string_view, Operation>> which) {
  ExpressionPtr left = (this->*part)();
  while (true) {
    const auto found = std::find_if(which.begin(), which.end(), [this](const auto& entry) {
      return cursor_.IsOperator(entry.first);
    });
    if (found == which.end()) return left;
    ExpressionPtr binary = Make(ExpressionKind::kBinary, cursor_.Next().line);
    binary->operations = {found->second};
    Add(binary.get(), std::move(left));
    Add(binary.get(), (this->*part)());
    left = std::move(binary);
  }
}

ExpressionPtr ExpressionParser::ParseSum() {
  return ParseBinary(&ExpressionParser::ParseConcat,
                     {{"+", Operation::kAdd}, {"-", Operation::kSubtract}});
}

ExpressionPtr ExpressionParser::ParseConcat() {
  ExpressionPtr first = ParseProduct();
  if (!cursor_.IsOperator("~")) return first;
  ExpressionPtr concat = Make(ExpressionKind::kConcat, first->line);
  Add(concat.get(), std::move(first));
  while (cursor_.SkipOperator("~")) Add(concat.get(), ParseProduct());
  return concat;
}

ExpressionPtr ExpressionParser::ParseProduct() {
  return ParseBinary(&ExpressionParser::ParsePower, {{"*", Operation::kMultiply},
                                                     {"/", Operation::kDivide},
                                                     {"//", Operation::kFloorDivide},
                                                     {"%", Operation::kModulo}});
}

ExpressionPtr ExpressionParser::ParsePower() {
  const auto unary = [this] { return ParseUnary(/*with_filters=*/true); };
  ExpressionPtr left = unary();
  while (cursor_.IsOperator("**")) {
    ExpressionPtr power = Make(ExpressionKind::kBinary, cursor_.Next().line);
    power->operations = {Operation::kPower};
    Add(power.get(), std::move(left));
    Add(power.get(), unary());
    left = std::move(power);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr input) {
  while (cursor_.SkipOperator("|")) input = ParseFilter(std::move(input));
  return input;
}

ExpressionPtr ExpressionParser::ParseFirstFilter(ExpressionPtr input) {
  return ParseFilters(ParseFilter(std::move(input)));
}

ExpressionPtr ExpressionParser::ParseFilter(ExpressionPtr input) {
  const int line = cursor_.line();
  ExpressionPtr filter =
      Make(ExpressionKind::kFilter, line, cursor_.ExpectName("the name of a filter"));
  if (cursor_.ok() && !IsFilter(filter->name)) {
    const std::string why = absl::StrCat("the filter ", filter->name, " is not supported");
    if (IsUnservedFilter(filter->name)) {
      cursor_.Fail(line, why);
    } else {
      unknown_.push_back({line, "", false, why});
    }
  }
  Add(filter.get(), std::move(input));
  if (cursor_.IsOperator("(")) ParseArguments(filter.get());
  CheckNestedName(*filter);
  return filter;
}

// The name of a test or filter that map, select and their kin take as text.
void ExpressionParser::CheckNestedName(const Expression& filter) {
  const bool attribute = filter.name == "selectattr" || filter.name == "rejectattr";
  const bool selects = attribute || filter.name == "select" || filter.name == "reject";
  const size_t at = attribute ? 2 : 1;
  if (!(selects || filter.name == "map") || filter.parts.size() <= at) return;
  const Value& name = filter.parts[at]->value;
  if (!name.is_string()) return;
  if (!selects && name.string() == "map")
    cursor_.Fail(filter.line, "the filter map of map is not supported");
  if (selects ? !IsTest(name.string()) : !IsFilter(name.string())) {
    unknown_.push_back({filter.line, "", true,
                        absl::StrCat("the ", selects ? "test " : "filter ",
                                     name.string().substr(0, 40), " is not supported")});
  }
}

void ExpressionParser::ForgiveUnknownCalls(size_t since) {
  unknown_.erase(std::remove_if(unknown_.begin() + std::min(since, unknown_.size()), unknown_.end(),
                                [](const Unknown& entry) { return entry.at_call; }),
                 unknown_.end());
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr input) {
  const int line = cursor_.Next().line;
  const bool negated = cursor_.SkipName("not");
  ExpressionPtr test = Make(ExpressionKind::kTest, line, cursor_.ExpectName("the name of a test"));
  if (cursor_.ok() && !IsTest(test->name)) {
    unknown_.push_back(
        {line, "", false, absl::StrCat("the test ", test->name, " is not supported")});
  }
  Add(test.get(), std::move(input));
  const Token& next = cursor_.Peek();
  const bool word = next.kind == TokenKind::kName && next.text != "else" && next.text != "or" &&
                    next.text != "and" && next.text != "if" && next.text != "in" &&
                    next.text != "not" && next.text != "is";
  if (cursor_.IsOperator("(")) {
    ParseArguments(test.get());
  } else if (word || next.kind == TokenKind::kString || next.kind == TokenKind::kInteger ||
             next.kind == TokenKind::kFloat || cursor_.IsOperator("[") || cursor_.IsOperator("{")) {
    Add(test.get(), ParsePostfix(ParsePrimary()));
  }
  if (!negated) return test;
  ExpressionPtr result = Make(ExpressionKind::kNot, line);
  Add(result.get(), std::move(test));
  return result;
}

}  // namespace coppice::tokenizer::jinja
