#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr absl::string_view kTests[] = {
    "boolean", "callable", "defined",  "divisibleby", "eq",       "equalto",     "escaped",
    "even",    "false",    "filter",   "float",       "ge",       "greaterthan", "gt",
    "in",      "integer",  "iterable", "le",          "lessthan", "lower",       "lt",
    "mapping", "ne",       "none",     "number",      "odd",      "sameas",      "sequence",
    "string",  "test",     "true",     "undefined",   "upper",    "==",          "!=",
    "<",       "<=",       ">",        ">="};

struct Comparison {
  absl::string_view name;
  Operation operation;
};
constexpr Comparison kComparisons[] = {
    {"eq", Operation::kEqual},        {"equalto", Operation::kEqual},
    {"ne", Operation::kUnequal},      {"lt", Operation::kLess},
    {"le", Operation::kLessEqual},    {"gt", Operation::kGreater},
    {"ge", Operation::kGreaterEqual}, {"in", Operation::kIn},
    {"lessthan", Operation::kLess},   {"greaterthan", Operation::kGreater},
    {"==", Operation::kEqual},        {"!=", Operation::kUnequal},
    {"<", Operation::kLess},          {"<=", Operation::kLessEqual},
    {">", Operation::kGreater},       {">=", Operation::kGreaterEqual}};

absl::StatusOr<bool> TestInteger(absl::string_view name, const Value& input, const Value* by) {
  if (!input.is_integer()) return BadValue(absl::StrCat(name, ": not an integer"));
  int64_t divisor = 2;
  if (name == "divisibleby") {
    if (by == nullptr || !by->is_integer() || by->integer() == 0)
      return BadValue("divisibleby needs an integer that is not 0");
    divisor = by->integer();
  }
  const bool divides = divisor == -1 || input.integer() % divisor == 0;
  return name == "odd" ? !divides : divides;
}

bool TestKind(absl::string_view name, const Value& input) {
  if (name == "defined") return !input.is_undefined();
  if (name == "undefined") return input.is_undefined();
  if (name == "none") return input.is_none();
  if (name == "boolean") return input.is_bool();
  if (name == "true") return input.is_bool() && input.integer() != 0;
  if (name == "false") return input.is_bool() && input.integer() == 0;
  if (name == "integer") return input.is_int();
  if (name == "float") return input.is_float();
  if (name == "number") return input.is_number();
  if (name == "string") return input.is_string();
  if (name == "mapping") return input.is_dict();
  if (name == "callable") return input.is_callable();
  if (name == "escaped") return input.is_markup();
  const bool sequence = input.is_string() || input.is_list() || input.is_dict() ||
                        input.is_range() || input.is_undefined();
  if (name == "sequence") return sequence;
  if (name == "iterable") return sequence || input.is_iterable() || input.loop() != nullptr;
  std::string text;  // upper, lower
  if (!AppendStr(input, &text)) return false;
  return HasCase(text, name == "upper");
}

}  // namespace

bool IsTest(absl::string_view name) {
  return std::find(std::begin(kTests), std::end(kTests), name) != std::end(kTests);
}

absl::StatusOr<bool> ApplyTest(absl::string_view name, const Value& input,
                               const Arguments& arguments, Budget* budget) {
  const Value* argument = arguments.values().empty() ? nullptr : &arguments.values()[0];
  for (const Comparison& comparison : kComparisons) {
    if (comparison.name != name) continue;
    COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
    if (argument == nullptr) return BadValue(absl::StrCat(name, " needs a value"));
    return Compare(comparison.operation, input, *argument, budget);
  }
  if (name == "sameas") {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
    if (argument == nullptr) return BadValue("sameas needs a value");
    if (input.is_string()) COPPICE_RETURN_IF_ERROR(budget->TakeText(input.string().size()));
    return input.IsSameAs(*argument);
  }
  if (name == "filter" || name == "test") {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
    if (!input.is_string()) return false;
    return name == "filter" ? IsFilter(input.string()) || IsUnservedFilter(input.string())
                            : IsTest(input.string());
  }
  if (!IsTest(name)) return BadValue(absl::StrCat("there is no test ", name.substr(0, 40)));
  if (name == "even" || name == "odd" || name == "divisibleby")
    return TestInteger(name, input, argument);
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (input.is_string()) COPPICE_RETURN_IF_ERROR(budget->TakeText(input.string().size()));
  return TestKind(name, input);
}

}  // namespace coppice::tokenizer::jinja
