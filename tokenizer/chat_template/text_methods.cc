// The methods of Python's str.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/python_format.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr absl::string_view kTextMethods[] = {
    "capitalize", "center",       "count",        "endswith",  "expandtabs",  "find",
    "format",     "index",        "isalnum",      "isalpha",   "isascii",     "isdecimal",
    "isdigit",    "isidentifier", "islower",      "isnumeric", "isprintable", "isspace",
    "istitle",    "isupper",      "join",         "ljust",     "lower",       "lstrip",
    "partition",  "removeprefix", "removesuffix", "replace",   "rfind",       "rindex",
    "rjust",      "rpartition",   "rsplit",       "rstrip",    "split",       "splitlines",
    "startswith", "strip",        "swapcase",     "title",     "upper",       "zfill"};

Result TextList(const std::vector<std::string>& parts, Budget* budget) {
  Value::Items items;
  for (const std::string& part : parts) items.push_back(Value::String(part));
  return CheckedList(std::move(items), /*tuple=*/false, budget);
}

Result Strip(const std::string& text, bool left, bool right, const Arguments& arguments,
             Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
  COPPICE_ASSIGN_OR_RETURN(const std::string* chars, arguments.Text(0, ""));
  if (chars != nullptr) {  // every character of the text may be compared with all of them
    int64_t cost = 0;
    if (__builtin_mul_overflow(text.size(), 1 + chars->size() / 8, &cost)) cost = INT64_MAX;
    COPPICE_RETURN_IF_ERROR(budget->Take(cost / 64));
  }
  return CheckedText(std::string(StripText(text, left, right, chars)), budget);
}

Result Split(const std::string& text, bool from_right, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"sep", "maxsplit"}));
  COPPICE_ASSIGN_OR_RETURN(const std::string* separator, arguments.Text(0, "sep"));
  COPPICE_ASSIGN_OR_RETURN(const int64_t most, arguments.Integer(1, "maxsplit", -1));
  if (separator != nullptr && separator->empty()) return BadValue("split: the separator is empty");
  return TextList(SplitText(text, separator, most, from_right), budget);
}

// The part of the text between the bounds that find and its kin take, which are as those of a slice.
// first: the index of its first character; -1 if the bounds exclude every place.
Result Within(const std::string& text, const Arguments& arguments, int64_t* first, Budget* budget) {
  *first = 0;
  if (arguments.values().size() < 2) return Value::String(text);
  const auto size = static_cast<int64_t>(CountCharacters(text));
  COPPICE_ASSIGN_OR_RETURN(int64_t start, arguments.Integer(1, "", 0));
  COPPICE_ASSIGN_OR_RETURN(int64_t end, arguments.Integer(2, "", size));
  const auto clamped = [size](int64_t at) {
    return at < 0 ? std::max<int64_t>(0, std::max(at, -size) + size) : at;
  };
  start = clamped(start);
  end = std::min(clamped(end), size);
  *first = start > size || start > end ? -1 : start;
  if (*first < 0) return Value::String("");
  COPPICE_RETURN_IF_ERROR(budget->TakeText(text.size()));
  return Value::String(std::string(CharacterRange(text, start, end)));
}

int64_t CountOf(absl::string_view text, absl::string_view wanted) {
  if (wanted.empty()) return static_cast<int64_t>(CountCharacters(text)) + 1;
  int64_t count = 0;
  for (size_t at = text.find(wanted); at != absl::string_view::npos;
       at = text.find(wanted, at + wanted.size()))
    ++count;
  return count;
}

// startswith and endswith take a string or a tuple of strings.
Result StartsOrEnds(const std::string& whole, bool starts, const Arguments& arguments,
                    Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(3));
  if (arguments.values().empty()) return BadValue("startswith and endswith need a text");
  int64_t first = 0;
  COPPICE_ASSIGN_OR_RETURN(const Value within, Within(whole, arguments, &first, budget));
  const std::string& text = within.string();
  const Value& given = arguments.values()[0];
  const Value::Items list = given.is_tuple() ? given.items() : Value::Items{given};
  for (const Value& entry : list) {
    if (!entry.is_string())
      return BadValue(absl::StrCat("startswith and endswith need a text, got ", entry.TypeName()));
    if (first >= 0 &&
        (starts ? absl::StartsWith(text, entry.string()) : absl::EndsWith(text, entry.string())))
      return Value(true);
  }
  return Value(false);
}

Result Replace(const std::string& text, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(3, {"count"}));
  COPPICE_ASSIGN_OR_RETURN(const std::string* old, arguments.Text(0, ""));
  COPPICE_ASSIGN_OR_RETURN(const std::string* with, arguments.Text(1, ""));
  COPPICE_ASSIGN_OR_RETURN(const int64_t most, arguments.Integer(2, "count", -1));
  if (old == nullptr || with == nullptr) return BadValue("replace needs two texts");
  // Checks the size before the text is made: at most one replacement for each byte of the replaced
  // text, and one more.
  const auto times = static_cast<int64_t>(text.size() / std::max<size_t>(1, old->size()) + 1);
  int64_t size = 0;
  if (__builtin_mul_overflow(times, static_cast<int64_t>(with->size()), &size) ||
      size > budget->max_text()) {
    const int64_t count = CountOf(text, *old);
    if (__builtin_mul_overflow(count, static_cast<int64_t>(with->size()), &size))
      size = INT64_MAX / 2;
    COPPICE_RETURN_IF_ERROR(budget->TakeText(size));
  }
  return CheckedText(ReplaceText(text, *old, *with, most), budget);
}

// find, rfind, index, rindex, count.
Result Find(const std::string& whole, absl::string_view name, const Arguments& arguments,
            Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(3));
  COPPICE_ASSIGN_OR_RETURN(const std::string* wanted, arguments.Text(0, ""));
  if (wanted == nullptr) return BadValue(absl::StrCat(name, " needs a text"));
  int64_t first = 0;
  COPPICE_ASSIGN_OR_RETURN(const Value within, Within(whole, arguments, &first, budget));
  const std::string& text = within.string();
  if (name == "count") return Value(first < 0 ? int64_t{0} : CountOf(text, *wanted));
  const size_t at = name[0] == 'r' ? text.rfind(*wanted) : text.find(*wanted);
  if (first >= 0 && at != std::string::npos)
    return Value(first +
                 static_cast<int64_t>(CountCharacters(absl::string_view(text).substr(0, at))));
  if (name == "index" || name == "rindex") return BadValue("index: the text is not found");
  return Value(int64_t{-1});
}

Result Join(const std::string& separator, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
  if (arguments.values().empty()) return BadValue("join needs a list");
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(arguments.values()[0], budget));
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string())
      return BadValue(absl::StrCat("join: expected texts, got ", items[i].TypeName()));
    absl::StrAppend(&text, i > 0 ? separator : "", items[i].string());
    COPPICE_RETURN_IF_ERROR(budget->TakeText(text.size() > budget->max_text() ? text.size() : 0));
  }
  return CheckedText(std::move(text), budget);
}

// isalpha and its kin.
Result Consists(const std::string& text, absl::string_view name) {
  if (name == "isupper" || name == "islower") return Value(HasCase(text, name == "isupper"));
  if (name == "istitle") return Value(TitleMethod(text) == text && Lower(text) != Upper(text));
  const bool empty_holds = name == "isascii" || name == "isprintable";
  bool all = empty_holds || !text.empty();
  bool first = true;
  for (const absl::string_view character : Characters(text)) {
    const CharacterKind kind = KindOf(character);
    const bool starts_name = kind.letter || character == "_";
    all = all && (name == "isalpha"        ? kind.letter
                  : name == "isdigit"      ? kind.digit
                  : name == "isdecimal"    ? kind.decimal
                  : name == "isnumeric"    ? kind.numeric
                  : name == "isalnum"      ? kind.letter || kind.numeric
                  : name == "isascii"      ? character.size() == 1 && character[0] >= 0
                  : name == "isprintable"  ? IsPrintable(character)
                  : name == "isidentifier" ? starts_name || (!first && kind.decimal)
                                           : StripText(character, true, false, nullptr).empty());
    first = false;
  }
  return Value(all);
}

// center, ljust, rjust, zfill.
Result Justify(const std::string& text, absl::string_view name, const Arguments& arguments,
               Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(name == "zfill" ? 1 : 2));
  COPPICE_ASSIGN_OR_RETURN(const int64_t width, arguments.Integer(0, "", -1));
  COPPICE_ASSIGN_OR_RETURN(const std::string* given, arguments.Text(1, ""));
  if (arguments.values().empty()) return BadValue(absl::StrCat(name, " needs a width"));
  const std::string fill = name == "zfill" ? "0" : given == nullptr ? " " : *given;
  if (CountCharacters(fill) != 1) return BadValue(absl::StrCat(name, " fills with a character"));
  const auto size = static_cast<int64_t>(CountCharacters(text));
  if (width <= size) return Value::String(text);
  const int64_t missing = width - size;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(missing, static_cast<int64_t>(fill.size()), &bytes) ||
      bytes > budget->max_text())
    bytes = INT64_MAX / 2;
  COPPICE_RETURN_IF_ERROR(budget->TakeText(bytes));
  const int64_t left = name == "ljust"    ? 0
                       : name == "center" ? missing / 2 + (missing & width & 1)
                                          : missing;
  std::string before, after;
  for (int64_t i = 0; i < missing; ++i) (i < left ? before : after) += fill;
  const size_t sign = name == "zfill" && !text.empty() && (text[0] == '-' || text[0] == '+');
  return CheckedText(absl::StrCat(text.substr(0, sign), before, text.substr(sign), after), budget);
}

// partition, rpartition.
Result Partition(const std::string& text, bool from_right, const Arguments& arguments,
                 Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
  COPPICE_ASSIGN_OR_RETURN(const std::string* separator, arguments.Text(0, ""));
  if (separator == nullptr || separator->empty()) return BadValue("partition needs a separator");
  const size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
  const bool found = at != std::string::npos;
  std::vector<std::string> parts = {text, "", ""};
  if (found) {
    parts = {text.substr(0, at), *separator, text.substr(at + separator->size())};
  } else if (from_right) {
    std::swap(parts[0], parts[2]);
  }
  Value::Items items;
  for (std::string& part : parts) items.push_back(Value::String(std::move(part)));
  return CheckedList(std::move(items), /*tuple=*/true, budget);
}

Result ExpandTabs(const std::string& text, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1, {"tabsize"}));
  COPPICE_ASSIGN_OR_RETURN(const int64_t size, arguments.Integer(0, "tabsize", 8));
  if (size > 256) return BadValue("expandtabs: tabsize must be at most 256");
  std::string out;
  int64_t column = 0;
  for (const absl::string_view character : Characters(text)) {
    if (character == "\t") {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(spaces, ' ');
      column += spaces;
    } else {
      out.append(character.data(), character.size());
      column = character == "\n" || character == "\r" ? 0 : column + 1;
    }
    if (out.size() > budget->max_text()) break;
  }
  return CheckedText(std::move(out), budget);
}

}  // namespace

bool IsTextMethod(absl::string_view name) {
  return std::find(std::begin(kTextMethods), std::end(kTextMethods), name) !=
         std::end(kTextMethods);
}

Result CallTextMethod(const std::string& text, absl::string_view name, const Arguments& arguments,
                      Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->TakeText(text.size()));
  if (name == "strip") return Strip(text, true, true, arguments, budget);
  if (name == "lstrip") return Strip(text, true, false, arguments, budget);
  if (name == "rstrip") return Strip(text, false, true, arguments, budget);
  if (name == "split" || name == "rsplit") return Split(text, name == "rsplit", arguments, budget);
  if (name == "startswith" || name == "endswith")
    return StartsOrEnds(text, name == "startswith", arguments, budget);
  if (name == "replace") return Replace(text, arguments, budget);
  if (name == "join") return Join(text, arguments, budget);
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count")
    return Find(text, name, arguments, budget);
  if (name == "center" || name == "ljust" || name == "rjust" || name == "zfill")
    return Justify(text, name, arguments, budget);
  if (name == "partition" || name == "rpartition")
    return Partition(text, name == "rpartition", arguments, budget);
  if (name == "expandtabs") return ExpandTabs(text, arguments, budget);
  if (name == "format") return BraceFormat(text, arguments, budget);
  if (name == "splitlines") {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(1, {"keepends"}));
    return TextList(SplitLines(text, arguments.Truth(0, "keepends", false)), budget);
  }
  if (name == "removeprefix" || name == "removesuffix") {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
    COPPICE_ASSIGN_OR_RETURN(const std::string* part, arguments.Text(0, ""));
    if (part == nullptr) return BadValue(absl::StrCat(name, " needs a text"));
    const bool prefix = name == "removeprefix";
    if (!(prefix ? absl::StartsWith(text, *part) : absl::EndsWith(text, *part)))
      return Value::String(text);
    return CheckedText(text.substr(prefix ? part->size() : 0, text.size() - part->size()), budget);
  }
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (name == "upper") return Value::String(Upper(text));
  if (name == "lower") return Value::String(Lower(text));
  if (name == "capitalize") return Value::String(Capitalize(text));
  if (name == "swapcase") return Value::String(SwapCase(text));
  if (name == "title") return Value::String(TitleMethod(text));
  return Consists(text, name);
}

}  // namespace coppice::tokenizer::jinja
