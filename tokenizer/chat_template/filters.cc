#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr absl::string_view kFilters[] = {
    "abs",        "capitalize", "count",  "d",          "default", "first",   "float", "indent",
    "int",        "items",      "join",   "last",       "length",  "list",    "lower", "map",
    "max",        "min",        "reject", "rejectattr", "replace", "reverse", "safe",  "select",
    "selectattr", "string",     "title",  "tojson",     "trim",    "upper"};

Result Length(const Value& input, Budget* budget) {
  if (input.is_undefined()) return Value(int64_t{0});
  if (input.is_list()) return Value(static_cast<int64_t>(input.items().size()));
  if (input.is_dict()) return Value(static_cast<int64_t>(input.entries().size()));
  if (!input.is_string()) return BadValue(absl::StrCat("length: ", input.TypeName(), " has none"));
  COPPICE_RETURN_IF_ERROR(budget->TakeText(input.string().size()));
  return Value(static_cast<int64_t>(CountCharacters(input.string())));
}

Result Default(const Value& input, const Arguments& arguments) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"default_value", "boolean"}));
  const bool replaced =
      input.is_undefined() || (arguments.Truth(1, "boolean", false) && !input.Truth());
  if (!replaced) return input;
  const Value* value = arguments.Get(0, "default_value");
  return value == nullptr ? Value::String("") : *value;
}

Result JoinFilter(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"d", "attribute"}));
  COPPICE_ASSIGN_OR_RETURN(const std::string* separator, arguments.Text(0, "d"));
  const Value* attribute = arguments.Get(1, "attribute");
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    const bool whole = attribute == nullptr || attribute->is_none();
    COPPICE_ASSIGN_OR_RETURN(
        const Value item, whole ? Result(items[i]) : AttributePath(items[i], *attribute, budget));
    COPPICE_ASSIGN_OR_RETURN(const std::string piece, TextOf(item, budget));
    if (i > 0 && separator != nullptr) text += *separator;
    text += piece;
    if (text.size() > budget->max_text()) return CheckedText(std::move(text), budget);
  }
  return CheckedText(std::move(text), budget);
}

// The names of the attribute and of the test that selectattr and its kin take, and its arguments.
Result Select(absl::string_view name, const Value& input, const Arguments& arguments,
              Budget* budget) {
  const bool by_attribute = name == "selectattr" || name == "rejectattr";
  const bool keeps = name == "select" || name == "selectattr";
  COPPICE_RETURN_IF_ERROR(arguments.Allow(SIZE_MAX));
  const Value::Items& values = arguments.values();
  const size_t at = by_attribute ? 1 : 0;
  if (values.size() < at) return BadValue(absl::StrCat(name, " needs an attribute"));
  std::string test;
  if (values.size() > at) {
    if (!values[at].is_string() || !IsTest(values[at].string()))
      return BadValue(absl::StrCat(name, ": there is no such test"));
    test = values[at].string();
  }
  const Arguments rest(
      values.size() > at + 1 ? Value::Items(values.begin() + at + 1, values.end()) : Value::Items(),
      {});
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  Value::Items kept;
  for (const Value& item : items) {
    COPPICE_ASSIGN_OR_RETURN(const Value tested,
                             by_attribute ? AttributePath(item, values[0], budget) : Result(item));
    bool holds = tested.Truth();
    if (!test.empty()) {
      COPPICE_ASSIGN_OR_RETURN(holds, ApplyTest(test, tested, rest, budget));
    }
    if (holds == keeps) kept.push_back(item);
  }
  return CheckedList(std::move(kept), /*tuple=*/false, budget);
}

Result Map(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  Value::Items mapped;
  if (arguments.values().empty()) {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(0, {"attribute", "default"}));
    const Value* attribute = arguments.Get(0, "attribute");
    const Value* fallback = arguments.Get(1, "default");
    if (attribute == nullptr) return BadValue("map needs a filter or an attribute");
    for (const Value& item : items) {
      COPPICE_ASSIGN_OR_RETURN(Value found, AttributePath(item, *attribute, budget));
      if (found.is_undefined() && fallback != nullptr) found = *fallback;
      mapped.push_back(std::move(found));
    }
    return CheckedList(std::move(mapped), /*tuple=*/false, budget);
  }
  const Value& filter = arguments.values()[0];
  // A filter that maps could call itself without end.
  if (!filter.is_string() || !IsFilter(filter.string()) || filter.string() == "map")
    return BadValue("map: there is no such filter");
  const Arguments rest(Value::Items(arguments.values().begin() + 1, arguments.values().end()),
                       arguments.named());
  for (const Value& item : items) {
    COPPICE_ASSIGN_OR_RETURN(Value result, ApplyFilter(filter.string(), item, rest, budget));
    mapped.push_back(std::move(result));
  }
  return CheckedList(std::move(mapped), /*tuple=*/false, budget);
}

Result Indent(const std::string& text, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(3, {"width", "first", "blank"}));
  std::string indent(4, ' ');
  if (const Value* width = arguments.Get(0, "width"); width != nullptr) {
    if (width->is_string()) {
      indent = width->string();
    } else if (width->is_integer() && width->integer() <= 1024) {
      indent = std::string(std::max<int64_t>(0, width->integer()), ' ');
    } else {
      return BadValue("indent: width must be a text or an integer up to 1024");
    }
  }
  const bool first = arguments.Truth(1, "first", false), blank = arguments.Truth(2, "blank", false);
  const std::vector<std::string> lines = SplitLines(text + "\n", /*keep_ends=*/false);
  int64_t size = 0;
  if (__builtin_mul_overflow(lines.size() + 1, indent.size(), &size)) size = INT64_MAX / 2;
  COPPICE_RETURN_IF_ERROR(budget->TakeText(size));
  std::string out = first ? indent : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) absl::StrAppend(&out, "\n", blank || !lines[i].empty() ? indent : "");
    out += lines[i];
  }
  return CheckedText(std::move(out), budget);
}

Result ToNumber(const Value& input, bool integer, const Arguments& arguments) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1, {"default"}));
  const Value* given = arguments.Get(0, "default");
  const Value fallback = given != nullptr ? *given : integer ? Value(int64_t{0}) : Value(0.0);
  double number = 0;
  if (input.is_number()) {
    if (integer && input.is_integer()) return Value(input.integer());
    number = input.number();
  } else if (input.is_string()) {
    const std::string text(StripText(input.string(), true, true, nullptr));
    int64_t whole = 0;
    if (integer && absl::SimpleAtoi(text, &whole)) return Value(whole);
    if (!absl::SimpleAtod(text, &number)) return fallback;
  } else {
    return fallback;
  }
  if (!integer) return Value(number);
  if (!(std::fabs(number) < 9.2e18)) return fallback;
  return Value(static_cast<int64_t>(number));
}

Result Extreme(const Value& input, bool largest, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  const auto key = [](const Value& item) {  // ignores the case of texts
    return item.is_string() ? Value::String(Lower(item.string())) : item;
  };
  Value best = items[0];
  for (const Value& item : items) {
    COPPICE_ASSIGN_OR_RETURN(
        const bool better,
        Compare(largest ? Operation::kGreater : Operation::kLess, key(item), key(best), budget));
    if (better) best = item;
  }
  return best;
}

Result Reverse(const Value& input, Budget* budget) {
  COPPICE_ASSIGN_OR_RETURN(Value::Items items, ItemsOf(input, budget));
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) return CheckedList(std::move(items), /*tuple=*/false, budget);
  std::string text;
  for (const Value& item : items) text += item.string();
  return CheckedText(std::move(text), budget);
}

Result Edge(const Value& input, bool first, Budget* budget) {
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  if (!items.empty()) return first ? items.front() : items.back();
  return Value::Undefined(
      absl::StrCat("No ", first ? "first" : "last", " item, sequence was empty."));
}

// Filters of str(input).
Result FilterText(absl::string_view name, const Value& input, const Arguments& arguments,
                  Budget* budget) {
  if (name == "indent" && !input.is_string())
    return BadValue(absl::StrCat("indent: expected a string, got ", input.TypeName()));
  COPPICE_ASSIGN_OR_RETURN(std::string text, TextOf(input, budget));
  if (name == "indent") return Indent(text, arguments, budget);
  if (name == "replace")
    return CallMethod(Value::String(std::move(text)), "replace", arguments, budget);
  if (name == "trim") {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(1, {"chars"}));
    Value::Items values;
    if (const Value* chars = arguments.Get(0, "chars"); chars != nullptr) values = {*chars};
    return CallMethod(Value::String(std::move(text)), "strip", Arguments(values, {}), budget);
  }
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (name == "upper") return Value::String(Upper(text));
  if (name == "lower") return Value::String(Lower(text));
  if (name == "capitalize") return Value::String(Capitalize(text));
  if (name == "title") return Value::String(TitleFilter(text));
  return Value::String(std::move(text));  // string, safe
}

}  // namespace

bool IsFilter(absl::string_view name) {
  return std::find(std::begin(kFilters), std::end(kFilters), name) != std::end(kFilters);
}

Result AttributePath(const Value& value, const Value& path, Budget* budget) {
  if (!path.is_string()) return ItemOf(value, path, budget);
  Value found = value;
  for (const absl::string_view part : absl::StrSplit(path.string(), '.')) {
    int64_t index = 0;
    const bool number =
        !part.empty() && absl::ascii_isdigit(part[0]) && absl::SimpleAtoi(part, &index);
    COPPICE_ASSIGN_OR_RETURN(
        found, ItemOf(found, number ? Value(index) : Value::String(std::string(part)), budget));
  }
  return found;
}

Result ApplyFilter(absl::string_view name, const Value& input, const Arguments& arguments,
                   Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->Take(1));
  if (name == "default" || name == "d") return Default(input, arguments);
  if (name == "tojson") return ToJson(input, arguments, budget);
  if (name == "join") return JoinFilter(input, arguments, budget);
  if (name == "map") return Map(input, arguments, budget);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return Select(name, input, arguments, budget);
  if (name == "int" || name == "float") return ToNumber(input, name == "int", arguments);
  if (name == "max" || name == "min") return Extreme(input, name == "max", arguments, budget);
  const bool of_text = name == "trim" || name == "replace" || name == "indent" || name == "upper" ||
                       name == "lower" || name == "capitalize" || name == "title" ||
                       name == "string" || name == "safe";
  if (of_text) return FilterText(name, input, arguments, budget);
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (name == "length" || name == "count") return Length(input, budget);
  if (name == "first" || name == "last") return Edge(input, name == "first", budget);
  if (name == "reverse") return Reverse(input, budget);
  if (name == "abs") {
    if (!input.is_number()) return BadValue(absl::StrCat("abs: got ", input.TypeName()));
    if (input.is_float()) return Value(std::fabs(input.number()));
    return input.integer() < 0 ? Binary(Operation::kSubtract, Value(int64_t{0}), input, budget)
                               : Result(Value(input.integer()));
  }
  if (name == "items") {
    if (input.is_undefined()) return Value::MakeList({});
    if (!input.is_dict()) return BadValue("items: expected a dictionary");
    return CallMethod(input, "items", arguments, budget);
  }
  COPPICE_ASSIGN_OR_RETURN(Value::Items items, ItemsOf(input, budget));  // list
  return CheckedList(std::move(items), /*tuple=*/false, budget);
}

}  // namespace coppice::tokenizer::jinja
