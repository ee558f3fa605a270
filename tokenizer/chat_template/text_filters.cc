#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/filters.h"
#include "tokenizer/chat_template/python_format.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

// A method of the text of the input, without arguments.
Result TextMethod(absl::string_view method, const Value& input, const Arguments& arguments,
                  Budget* budget) {
  if (input.is_string()) return CallMethod(input, method, arguments, budget);
  COPPICE_ASSIGN_OR_RETURN(std::string text, TextOf(input, budget));
  return CallMethod(Value::String(std::move(text)), method, arguments, budget);
}

// The text of an argument that must be there.
absl::StatusOr<std::string> TextArgument(const Arguments& arguments, size_t place,
                                         absl::string_view name, Budget* budget) {
  const Value* value = arguments.Get(place, name);
  if (value == nullptr) return BadValue(absl::StrCat("the argument '", name, "' is missing"));
  return TextOf(*value, budget);
}

}  // namespace

Result FilterCapitalize(const Value& input, const Arguments& arguments, Budget* budget) {
  return TextMethod("capitalize", input, arguments, budget);
}
Result FilterLower(const Value& input, const Arguments& arguments, Budget* budget) {
  return TextMethod("lower", input, arguments, budget);
}
Result FilterUpper(const Value& input, const Arguments& arguments, Budget* budget) {
  return TextMethod("upper", input, arguments, budget);
}

Result FilterString(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (input.is_string()) return input;
  COPPICE_ASSIGN_OR_RETURN(std::string text, TextOf(input, budget));
  return Value::String(std::move(text));
}

Result FilterTitle(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  COPPICE_ASSIGN_OR_RETURN(const std::string text, TextOf(input, budget));
  return CheckedText(TitleFilter(text), budget);
}

Result FilterTrim(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1, {"chars"}));
  Value::Items values;
  if (const Value* chars = arguments.Get(0, "chars"); chars != nullptr) values = {*chars};
  return TextMethod("strip", input, Arguments(values, {}), budget);
}

Result FilterCenter(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1, {"width"}));
  const Value* width = arguments.Get(0, "width");
  return TextMethod("center", input,
                    Arguments({width == nullptr ? Value(int64_t{80}) : *width}, {}), budget);
}

Result FilterReplace(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(3, {"old", "new", "count"}));
  COPPICE_ASSIGN_OR_RETURN(std::string old, TextArgument(arguments, 0, "old", budget));
  COPPICE_ASSIGN_OR_RETURN(std::string with, TextArgument(arguments, 1, "new", budget));
  COPPICE_ASSIGN_OR_RETURN(const int64_t count, arguments.Integer(2, "count", -1));
  COPPICE_ASSIGN_OR_RETURN(std::string text, TextOf(input, budget));  // without a mark as safe
  return TextMethod(
      "replace", Value::String(std::move(text)),
      Arguments({Value::String(std::move(old)), Value::String(std::move(with)), Value(count)}, {}),
      budget);
}

Result FilterFormat(const Value& input, const Arguments& arguments, Budget* budget) {
  if (!arguments.values().empty() && !arguments.named().empty())
    return BadValue("format takes arguments by place or by name");
  if (input.is_markup()) return BadValue("format of a text that is marked as safe");
  COPPICE_ASSIGN_OR_RETURN(const std::string text, TextOf(input, budget));
  Value::Entries named;
  for (const auto& argument : arguments.named())
    named.emplace_back(Value::String(argument.first), argument.second);
  const Value values = arguments.named().empty()
                           ? Value::MakeList(arguments.values(), /*tuple=*/true)
                           : Value::MakeDict(std::move(named));
  return PercentFormat(text, values, budget);
}

Result FilterIndent(const Value& input, const Arguments& arguments, Budget* budget) {
  if (!input.is_string())
    return BadValue(absl::StrCat("indent: expected a string, got ", input.TypeName()));
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
  COPPICE_RETURN_IF_ERROR(budget->TakeText(input.string().size()));
  const std::vector<std::string> lines = SplitLines(input.string() + "\n", /*keep_ends=*/false);
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

Result FilterTruncate(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(4, {"length", "killwords", "end", "leeway"}));
  COPPICE_ASSIGN_OR_RETURN(const int64_t length, arguments.Integer(0, "length", 255));
  COPPICE_ASSIGN_OR_RETURN(const std::string* given, arguments.Text(2, "end"));
  COPPICE_ASSIGN_OR_RETURN(const int64_t leeway, arguments.Integer(3, "leeway", 5));
  const std::string end = given == nullptr ? "..." : *given;
  const auto end_size = static_cast<int64_t>(CountCharacters(end));
  if (!input.is_string()) return BadValue(absl::StrCat("truncate: got ", input.TypeName()));
  if (length < end_size || leeway < 0 || length > (int64_t{1} << 40) || leeway > (int64_t{1} << 40))
    return BadValue("truncate: length or leeway is out of range");
  COPPICE_RETURN_IF_ERROR(budget->TakeText(input.string().size()));
  if (static_cast<int64_t>(CountCharacters(input.string())) <= length + leeway) return input;
  std::string kept(CharacterRange(input.string(), 0, length - end_size));
  if (!arguments.Truth(1, "killwords", false)) kept = kept.substr(0, kept.rfind(' '));
  return CheckedText(kept + end, budget);
}

Result FilterWordcount(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  COPPICE_ASSIGN_OR_RETURN(const std::string text, TextOf(input, budget));
  int64_t words = 0;
  bool inside = false;
  for (const absl::string_view character : Characters(text)) {
    const bool word = character == "_" || IsAlphanumeric(character);
    words += word && !inside;
    inside = word;
  }
  return Value(words);
}

}  // namespace coppice::tokenizer::jinja
