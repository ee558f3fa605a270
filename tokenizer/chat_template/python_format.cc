#include "tokenizer/chat_template/python_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/python_text.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr int kMostDigits = 100;  // of a precision
constexpr int64_t kMostWidth = 10000;

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = '\0', sign = '-', type = '\0';
  bool alternate = false, zero = false, comma = false;
  int64_t width = 0;
  std::optional<int> precision;
};

using Text = absl::StatusOr<std::string>;

bool IsDigitAt(absl::string_view text, size_t at) {
  return at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]));
}

// The number at the place, which moves behind it. An error if it is larger than the limit.
absl::StatusOr<int64_t> TakeNumber(absl::string_view text, size_t* at, int64_t limit) {
  int64_t number = 0;
  for (; IsDigitAt(text, *at); ++*at) {
    number = 10 * number + (text[*at] - '0');
    if (number > limit) return BadValue("a width in a format is too large");
  }
  return number;
}

Text Padded(absl::string_view text, const Spec& spec, char default_align, size_t sign_size) {
  const auto size = static_cast<int64_t>(CountCharacters(text));
  if (size >= spec.width) return std::string(text);
  const int64_t missing = spec.width - size;
  const char align = spec.align != '\0' ? spec.align : default_align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before, after;
  for (int64_t i = 0; i < missing; ++i) (i < left ? before : after) += spec.fill;
  if (align == '=') return absl::StrCat(text.substr(0, sign_size), before, text.substr(sign_size));
  return absl::StrCat(before, text, after);
}

// With a comma between groups of three digits before the point.
std::string WithCommas(const std::string& digits) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < end && (end - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string Printf(const std::string& format, int precision, double value) {
  std::string out(512, '\0');
  const int size = std::snprintf(out.data(), out.size(), format.c_str(), precision, value);
  out.resize(std::clamp<int>(size, 0, static_cast<int>(out.size()) - 1));
  return out;
}

// The digits of a number without its sign.
Text FloatDigits(double value, const Spec& spec, char type) {
  if (std::isnan(value) || std::isinf(value)) {
    const std::string text = std::isnan(value) ? "nan" : "inf";
    return absl::ascii_isupper(type) ? absl::AsciiStrToUpper(text) : text;
  }
  if (type == '\0' && !spec.precision) return FloatRepr(value);
  const bool percent = type == '%';
  // With a precision and no type, as "g", but a number has a point.
  const char letter = percent ? 'f' : type == '\0' ? 'g' : type == 'n' ? 'g' : type;
  const int precision = spec.precision.value_or(6);
  std::string text =
      Printf(absl::StrCat("%", spec.alternate ? "#" : "", ".*", std::string(1, letter)), precision,
             percent ? value * 100 : value);
  if (type == '\0' && text.find_first_of(".e") == std::string::npos) text += ".0";
  return percent ? text + "%" : text;
}

Text IntegerDigits(uint64_t value, const Spec& spec, char type) {
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[value % base]);
    value /= base;
  } while (value > 0);
  if (spec.alternate && base != 10)
    digits = absl::StrCat("0", std::string(1, base == 16 ? 'x' : base == 8 ? 'o' : 'b'), digits);
  return type == 'X' ? absl::AsciiStrToUpper(digits) : digits;
}

Text FormatNumber(const Value& value, const Spec& spec) {
  const char type = spec.type;
  const bool integer_type = type == 'd' || type == 'b' || type == 'o' || type == 'x' || type == 'X';
  const bool as_integer = value.is_integer() && (type == '\0' || integer_type || type == 'n');
  const bool float_type =
      absl::string_view("eEfFgGn%").find(type) != absl::string_view::npos || type == '\0';
  if (!as_integer && !float_type)
    return BadValue(absl::StrCat("the format ", std::string(1, type), " of ", value.TypeName()));
  if (as_integer && spec.precision) return BadValue("a precision in the format of an integer");
  const bool negative = as_integer ? value.integer() < 0 : std::signbit(value.number());
  const uint64_t size = as_integer && negative ? 0 - static_cast<uint64_t>(value.integer())
                        : as_integer           ? value.integer()
                                               : 0;
  COPPICE_ASSIGN_OR_RETURN(std::string digits,
                           as_integer ? IntegerDigits(size, spec, type)
                                      : FloatDigits(std::fabs(value.number()), spec, type));
  if (spec.comma) digits = WithCommas(digits);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return Padded(sign + digits, spec, '>', sign.size());
}

absl::StatusOr<Spec> ParseSpec(absl::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [&](size_t place) {
    return place < text.size() && absl::string_view("<>=^").find(text[place]) != text.npos;
  };
  const size_t first = text.empty() ? 0 : NextUtf8Char(text).length;
  if (!text.empty() && is_align(first)) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  const auto skip = [&](char c) { return at < text.size() && text[at] == c && (++at, true); };
  if (at < text.size() && absl::string_view("+- ").find(text[at]) != text.npos)
    spec.sign = text[at++];
  spec.alternate = skip('#');
  if (skip('0') && spec.align == '\0') {
    spec.zero = true;
    spec.fill = "0";
    spec.align = '=';
  }
  COPPICE_ASSIGN_OR_RETURN(spec.width, TakeNumber(text, &at, kMostWidth));
  spec.comma = skip(',');
  if (skip('.')) {
    if (!IsDigitAt(text, at)) return BadValue("a format has no precision after its point");
    COPPICE_ASSIGN_OR_RETURN(const int64_t precision, TakeNumber(text, &at, kMostWidth));
    spec.precision = static_cast<int>(precision);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) return BadValue(absl::StrCat("the format '", text, "' is not supported"));
  return spec;
}

// format(value, spec).
Text FormatValue(const Value& value, absl::string_view spec_text, Budget* budget) {
  if (value.is_undefined() && spec_text.empty()) return std::string();
  if (spec_text.empty()) return TextOf(value, budget);
  COPPICE_ASSIGN_OR_RETURN(Spec spec, ParseSpec(spec_text));
  COPPICE_RETURN_IF_ERROR(budget->TakeText(spec.width * spec.fill.size()));
  if (value.is_number()) {
    if (spec.precision.value_or(0) > kMostDigits) return BadValue("a precision is too large");
    return FormatNumber(value, spec);
  }
  if (!value.is_string())
    return BadValue(absl::StrCat("a format for ", value.TypeName(), " is not supported"));
  if ((spec.type != '\0' && spec.type != 's') || spec.sign != '-' || spec.comma || spec.alternate ||
      (spec.align == '=' && !spec.zero))
    return BadValue(absl::StrCat("the format '", spec_text, "' of a text"));
  if (spec.align == '=') spec.align = '<';
  absl::string_view text = value.string();
  if (spec.precision) text = CharacterRange(text, 0, *spec.precision);
  return Padded(text, spec, '<', 0);
}

// The value of one %, whose letter is at the place.
Text PercentValue(const Value& value, Spec spec, Budget* budget) {
  const char letter = spec.type;
  if (letter == 's' || letter == 'r' || letter == 'a') {
    std::string text;
    if (letter == 's') {
      COPPICE_ASSIGN_OR_RETURN(text, TextOf(value, budget));
    } else {
      COPPICE_RETURN_IF_ERROR(TextOf(value, budget).status());
      if (!AppendRepr(value, &text)) return BadValue("cannot print a value");
    }
    if (spec.precision) text = std::string(CharacterRange(text, 0, *spec.precision));
    spec.fill = " ";
    return Padded(text, spec, '>', 0);
  }
  if (letter == 'c') {
    if (value.is_string() && CountCharacters(value.string()) == 1)
      return Padded(value.string(), spec, '>', 0);
    return BadValue("%c needs a character");
  }
  if (!value.is_number())
    return BadValue(
        absl::StrCat("%", std::string(1, letter), " needs a number, got ", value.TypeName()));
  if (spec.precision.value_or(0) > kMostDigits) return BadValue("a precision is too large");
  if (letter == 'd' || letter == 'i' || letter == 'u') {
    spec.type = 'd';
    if (value.is_integer()) {
      spec.precision.reset();
      return FormatNumber(value, spec);
    }
    if (!(std::fabs(value.number()) < 9.2e18)) return BadValue("%d: the number is too large");
    spec.precision.reset();
    return FormatNumber(Value(static_cast<int64_t>(value.number())), spec);
  }
  if (letter == 'x' || letter == 'X' || letter == 'o') {
    if (!value.is_integer()) return BadValue("%x and %o need an integer");
    spec.precision.reset();
    return FormatNumber(value, spec);
  }
  return FormatNumber(Value(value.number()), spec);
}

// The argument that a replacement field names: a place, a name, then .attribute and [item].
Result FieldValue(absl::string_view field, const Arguments& arguments, int64_t* next,
                  Budget* budget) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const absl::string_view first = field.substr(0, end);
  int64_t place = 0;
  const Value* found = nullptr;
  if (first.empty()) {
    place = (*next)++;
  } else if (!absl::SimpleAtoi(first, &place)) {
    place = -1;
    found = arguments.Get(SIZE_MAX, first);
  }
  if (place >= 0 && place < static_cast<int64_t>(arguments.values().size()))
    found = &arguments.values()[place];
  if (found == nullptr)
    return BadValue(absl::StrCat("format: there is no argument for '", field, "'"));
  Value value = *found;
  absl::string_view rest = field.substr(end);
  while (!rest.empty()) {
    const bool item = rest[0] == '[';
    const size_t stop = item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
    if (stop == absl::string_view::npos || (!item && rest[0] != '.'))
      return BadValue(absl::StrCat("format: bad field '", field, "'"));
    const std::string name(rest.substr(1, stop - 1));
    if (item) {
      COPPICE_ASSIGN_OR_RETURN(
          value,
          AttributePath(value,
                        IsDigitAt(name, 0) ? Value(int64_t{std::stoll("0" + name.substr(0, 9))})
                                           : Value::String(name),
                        budget));
    } else {
      COPPICE_ASSIGN_OR_RETURN(value, AttributeOf(value, name, budget));
    }
    rest.remove_prefix(stop + (item ? 1 : 0));
  }
  return value;
}

}  // namespace

Result PercentFormat(const std::string& text, const Value& values, Budget* budget) {
  std::string out;
  size_t used = 0;
  bool by_name = false;
  const size_t given = values.is_tuple() ? values.items().size() : 1;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '%') {
      out += text[at++];
      continue;
    }
    ++at;
    Value value;
    Spec spec;
    bool named = false;
    if (at < text.size() && text[at] == '(') {
      const size_t end = text.find(')', at);
      if (end == std::string::npos) return BadValue("a name in a format is not closed");
      const Value* found = values.is_dict()
                               ? values.Find(absl::string_view(text).substr(at + 1, end - at - 1))
                               : nullptr;
      if (found == nullptr) return BadValue("a format names a value that is not there");
      value = *found;
      at = end + 1;
      named = by_name = true;
    }
    for (; at < text.size() && absl::string_view("-+ #0").find(text[at]) != absl::string_view::npos;
         ++at) {
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '+' || (text[at] == ' ' && spec.sign != '+')) spec.sign = text[at];
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0') spec.zero = true;
    }
    COPPICE_ASSIGN_OR_RETURN(spec.width, TakeNumber(text, &at, kMostWidth));
    if (at < text.size() && text[at] == '.') {
      ++at;
      COPPICE_ASSIGN_OR_RETURN(const int64_t precision, TakeNumber(text, &at, kMostWidth));
      spec.precision = static_cast<int>(precision);
    }
    if (at == text.size()) return BadValue("a format ends after %");
    spec.type = text[at++];
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    if (absl::string_view("sracdiuxXoeEfFgG").find(spec.type) == absl::string_view::npos)
      return BadValue(absl::StrCat("the format %", std::string(1, spec.type), " is not supported"));
    if (spec.zero && spec.align == '\0' &&
        absl::string_view("srac").find(spec.type) == absl::string_view::npos) {
      spec.fill = "0";
      spec.align = '=';
    }
    if (!named) {
      if (used == given) return BadValue("a format has more places than values");
      value = values.is_tuple() ? values.items()[used] : values;
      ++used;
    }
    COPPICE_RETURN_IF_ERROR(budget->TakeText(spec.width));
    COPPICE_ASSIGN_OR_RETURN(const std::string piece, PercentValue(value, spec, budget));
    out += piece;
    if (out.size() > budget->max_text()) break;
  }
  if (!by_name && used < given && !values.is_dict() && !(values.is_list() && !values.is_tuple()))
    return BadValue("a format has fewer places than values");
  return CheckedText(std::move(out), budget);
}

Result BraceFormat(const std::string& text, const Arguments& arguments, Budget* budget) {
  std::string out;
  int64_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      at += 2;
      continue;
    }
    if (c == '}') return BadValue("format: a single '}'");
    if (c != '{') {
      out += c;
      ++at;
      continue;
    }
    const size_t end = text.find('}', at);
    if (end == std::string::npos) return BadValue("format: a '{' is not closed");
    absl::string_view field = absl::string_view(text).substr(at + 1, end - at - 1);
    if (field.find('{') != absl::string_view::npos)
      return BadValue("format: fields inside of fields are not supported");
    at = end + 1;
    const size_t colon = std::min(field.find(':'), field.size());
    const absl::string_view spec = field.substr(std::min(colon + 1, field.size()));
    field = field.substr(0, colon);
    char conversion = '\0';
    if (const size_t bang = field.find('!'); bang != absl::string_view::npos) {
      if (bang + 2 != field.size()) return BadValue("format: bad conversion");
      conversion = field[bang + 1];
      field = field.substr(0, bang);
    }
    COPPICE_ASSIGN_OR_RETURN(Value value, FieldValue(field, arguments, &next, budget));
    if (conversion != '\0') {
      if (conversion != 's' && conversion != 'r') return BadValue("format: bad conversion");
      COPPICE_ASSIGN_OR_RETURN(std::string shown, TextOf(value, budget));
      if (conversion == 'r') {
        shown.clear();
        if (!AppendRepr(value, &shown)) return BadValue("cannot print a value");
      }
      value = Value::String(std::move(shown));
    }
    COPPICE_ASSIGN_OR_RETURN(const std::string piece, FormatValue(value, spec, budget));
    out += piece;
    if (out.size() > budget->max_text()) break;
  }
  return CheckedText(std::move(out), budget);
}

}  // namespace coppice::tokenizer::jinja
