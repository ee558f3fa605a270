#include "tokenizer/chat_template/filters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

Result FilterDefault(const Value& input, const Arguments& arguments, Budget*) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"default_value", "boolean"}));
  const bool replaced =
      input.is_undefined() || (arguments.Truth(1, "boolean", false) && !input.Truth());
  if (!replaced) return input;
  const Value* value = arguments.Get(0, "default_value");
  return value == nullptr ? Value::String("") : *value;
}

Result FilterAbs(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (!input.is_number()) return BadValue(absl::StrCat("abs: got ", input.TypeName()));
  if (input.is_float()) return Value(std::fabs(input.number()));
  return input.integer() < 0 ? Binary(Operation::kSubtract, Value(int64_t{0}), input, budget)
                             : Result(Value(input.integer()));
}

// The attribute alone, never an item of a dictionary.
Result FilterAttr(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1, {"name"}));
  COPPICE_ASSIGN_OR_RETURN(const std::string* name, arguments.Text(0, "name"));
  if (name == nullptr) return BadValue("attr needs a name");
  if (input.is_dict() && !HasMethod(input, *name))
    return Value::Undefined(absl::StrCat("a dictionary has no attribute '", *name, "'"));
  return AttributeOf(input, *name, budget);
}

// int and float: what is no number becomes the default.
Result ToNumber(const Value& input, bool integer, const Arguments& arguments) {
  const Value* given = arguments.Get(0, "default");
  const Value fallback = given != nullptr ? *given : integer ? Value(int64_t{0}) : Value(0.0);
  double number = 0;
  if (input.is_undefined()) return BadValue(input.why_undefined());
  if (input.is_number()) {
    if (integer && input.is_integer()) return Value(input.integer());
    number = input.number();
  } else if (input.is_string()) {
    const std::string text(StripText(input.string(), true, true, nullptr));
    int64_t whole = 0;
    if (integer && absl::SimpleAtoi(text, &whole)) return Value(whole);
    const bool hex = text.find_first_of("xX") != std::string::npos;  // no float of Python
    if (hex || !absl::SimpleAtod(text, &number)) return fallback;
  } else {
    return fallback;
  }
  if (!integer) return Value(number);
  if (!(std::fabs(number) < 9.2e18)) return fallback;
  return Value(static_cast<int64_t>(number));
}

Result FilterInt(const Value& input, const Arguments& arguments, Budget*) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"default", "base"}));
  COPPICE_ASSIGN_OR_RETURN(const int64_t base, arguments.Integer(1, "base", 10));
  if (base == 10 || !input.is_string()) return ToNumber(input, /*integer=*/true, arguments);
  if (base < 2 || base > 36) return BadValue("int: base must be from 2 to 36");
  const std::string text(StripText(input.string(), true, true, nullptr));
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text.c_str(), &end, static_cast<int>(base));
  if (!text.empty() && *end == '\0' && errno == 0) return Value(value);
  return ToNumber(input, /*integer=*/true, arguments);
}

Result FilterFloat(const Value& input, const Arguments& arguments, Budget*) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1, {"default"}));
  return ToNumber(input, /*integer=*/false, arguments);
}

Result FilterRound(const Value& input, const Arguments& arguments, Budget*) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"precision", "method"}));
  COPPICE_ASSIGN_OR_RETURN(const int64_t precision, arguments.Integer(0, "precision", 0));
  COPPICE_ASSIGN_OR_RETURN(const std::string* given, arguments.Text(1, "method"));
  const std::string method = given == nullptr ? "common" : *given;
  if (!input.is_number()) return BadValue(absl::StrCat("round: got ", input.TypeName()));
  if (precision < 0 || precision > 15) return BadValue("round: precision must be from 0 to 15");
  if (method == "common") {  // to even, as Python does
    if (input.is_integer()) return Value(input.integer());
    double rounded = 0;
    const std::string text = absl::StrFormat("%.*f", static_cast<int>(precision), input.number());
    return absl::SimpleAtod(text, &rounded) ? Value(rounded) : input;
  }
  if (method != "ceil" && method != "floor") return BadValue("round: method is unknown");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result FilterSafe(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  COPPICE_ASSIGN_OR_RETURN(std::string text, TextOf(input, budget));
  return Value::Markup(std::move(text));
}

Result FilterEscape(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  return Escaped(input, budget);
}

Result FilterForceescape(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  COPPICE_ASSIGN_OR_RETURN(std::string text, TextOf(input, budget));
  return Escaped(Value::String(std::move(text)), budget);
}

struct FilterRow {
  absl::string_view name;
  Filter* apply;
};
constexpr FilterRow kFilters[] = {
    {"abs", FilterAbs},
    {"attr", FilterAttr},
    {"batch", FilterBatch},
    {"capitalize", FilterCapitalize},
    {"center", FilterCenter},
    {"count", FilterLength},
    {"d", FilterDefault},
    {"default", FilterDefault},
    {"dictsort", FilterDictsort},
    {"e", FilterEscape},
    {"escape", FilterEscape},
    {"first", FilterFirst},
    {"float", FilterFloat},
    {"forceescape", FilterForceescape},
    {"format", FilterFormat},
    {"groupby", FilterGroupby},
    {"indent", FilterIndent},
    {"int", FilterInt},
    {"items", FilterItems},
    {"join", FilterJoin},
    {"last", FilterLast},
    {"length", FilterLength},
    {"list", FilterList},
    {"lower", FilterLower},
    {"map", FilterMap},
    {"max", FilterMax},
    {"min", FilterMin},
    {"reject", FilterReject},
    {"rejectattr", FilterRejectattr},
    {"replace", FilterReplace},
    {"reverse", FilterReverse},
    {"round", FilterRound},
    {"safe", FilterSafe},
    {"select", FilterSelect},
    {"selectattr", FilterSelectattr},
    {"slice", FilterSlice},
    {"sort", FilterSort},
    {"string", FilterString},
    {"sum", FilterSum},
    {"title", FilterTitle},
    {"tojson", ToJson},
    {"trim", FilterTrim},
    {"truncate", FilterTruncate},
    {"unique", FilterUnique},
    {"upper", FilterUpper},
    {"wordcount", FilterWordcount},
};
constexpr absl::string_view kUnservedFilters[] = {"filesizeformat", "pprint",    "random",
                                                  "striptags",      "urlencode", "urlize",
                                                  "wordwrap",       "xmlattr"};

const FilterRow* FindFilter(absl::string_view name) {
  const auto* row = std::find_if(std::begin(kFilters), std::end(kFilters),
                                 [&](const FilterRow& entry) { return entry.name == name; });
  return row == std::end(kFilters) ? nullptr : row;
}

}  // namespace

bool IsFilter(absl::string_view name) { return FindFilter(name) != nullptr; }

bool IsUnservedFilter(absl::string_view name) {
  return std::find(std::begin(kUnservedFilters), std::end(kUnservedFilters), name) !=
         std::end(kUnservedFilters);
}

Result AttributePath(const Value& value, const Value& path, Budget* budget, const Value* fallback) {
  const auto item = [&](const Value& from, const Value& key) -> Result {
    COPPICE_ASSIGN_OR_RETURN(const Value found, ItemOf(from, key, budget));
    return found.is_undefined() && fallback != nullptr ? *fallback : found;
  };
  if (!path.is_string()) return item(value, path);
  Value found = value;
  for (const absl::string_view part : absl::StrSplit(path.string(), '.')) {
    int64_t index = 0;
    const bool number =
        !part.empty() && absl::ascii_isdigit(part[0]) && absl::SimpleAtoi(part, &index);
    COPPICE_ASSIGN_OR_RETURN(found,
                             item(found, number ? Value(index) : Value::String(std::string(part))));
  }
  return found;
}

Result ApplyFilter(absl::string_view name, const Value& input, const Arguments& arguments,
                   Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->Take(1));
  const FilterRow* row = FindFilter(name);
  if (row == nullptr) return BadValue(absl::StrCat("there is no filter ", name.substr(0, 40)));
  return row->apply(input, arguments, budget);
}

}  // namespace coppice::tokenizer::jinja
