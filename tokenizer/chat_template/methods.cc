#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr absl::string_view kTextMethods[] = {
    "capitalize", "count",        "endswith",     "find",  "index",  "isalnum",
    "isalpha",    "isdigit",      "isspace",      "join",  "lower",  "lstrip",
    "replace",    "removeprefix", "removesuffix", "rfind", "rsplit", "rstrip",
    "split",      "splitlines",   "startswith",   "strip", "title",  "upper"};
constexpr absl::string_view kListMethods[] = {"count", "index"};
constexpr absl::string_view kDictMethods[] = {"get", "items", "keys", "values"};
constexpr absl::string_view kLoopMethods[] = {"cycle"};

template <size_t n>
bool Has(const absl::string_view (&names)[n], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

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

// startswith and endswith take a string or a tuple of strings.
Result StartsOrEnds(const std::string& text, bool starts, const Arguments& arguments) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
  if (arguments.values().empty()) return BadValue("startswith and endswith need a text");
  const Value& given = arguments.values()[0];
  const Value::Items list = given.is_tuple() ? given.items() : Value::Items{given};
  for (const Value& entry : list) {
    if (!entry.is_string())
      return BadValue(absl::StrCat("startswith and endswith need a text, got ", entry.TypeName()));
    if (starts ? absl::StartsWith(text, entry.string()) : absl::EndsWith(text, entry.string()))
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
    int64_t found = 0;
    for (size_t at = text.find(*old); at != std::string::npos && !old->empty();
         at = text.find(*old, at + old->size()))
      ++found;
    const int64_t count = old->empty() ? times : found;
    if (__builtin_mul_overflow(count, static_cast<int64_t>(with->size()), &size))
      size = INT64_MAX / 2;
    COPPICE_RETURN_IF_ERROR(budget->TakeText(size));
  }
  return CheckedText(ReplaceText(text, *old, *with, most), budget);
}

Result Find(const std::string& text, absl::string_view name, const Arguments& arguments) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
  COPPICE_ASSIGN_OR_RETURN(const std::string* wanted, arguments.Text(0, ""));
  if (wanted == nullptr) return BadValue(absl::StrCat(name, " needs a text"));
  if (name == "count") {
    int64_t count = 0;
    if (wanted->empty()) return Value(static_cast<int64_t>(CountCharacters(text)) + 1);
    for (size_t at = text.find(*wanted); at != std::string::npos;
         at = text.find(*wanted, at + wanted->size()))
      ++count;
    return Value(count);
  }
  const size_t at = name == "rfind" ? text.rfind(*wanted) : text.find(*wanted);
  if (at != std::string::npos)
    return Value(static_cast<int64_t>(CountCharacters(absl::string_view(text).substr(0, at))));
  if (name == "index") return BadValue("index: the text is not found");
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

// isalpha, isdigit, isalnum, isspace. Letters outside of ASCII count as letters.
Result Consists(const std::string& text, absl::string_view name) {
  bool all = !text.empty();
  for (const absl::string_view character : Characters(text)) {
    const unsigned char c = character[0];
    const bool letter = absl::ascii_isalpha(c) || c >= 0x80, digit = absl::ascii_isdigit(c);
    all = all && (name == "isalpha"   ? letter
                  : name == "isdigit" ? digit
                  : name == "isalnum" ? letter || digit
                                      : StripText(character, true, false, nullptr).empty());
  }
  return Value(all);
}

Result CallTextMethod(const std::string& text, absl::string_view name, const Arguments& arguments,
                      Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->TakeText(text.size()));
  if (name == "strip") return Strip(text, true, true, arguments, budget);
  if (name == "lstrip") return Strip(text, true, false, arguments, budget);
  if (name == "rstrip") return Strip(text, false, true, arguments, budget);
  if (name == "split" || name == "rsplit") return Split(text, name == "rsplit", arguments, budget);
  if (name == "startswith" || name == "endswith")
    return StartsOrEnds(text, name == "startswith", arguments);
  if (name == "replace") return Replace(text, arguments, budget);
  if (name == "join") return Join(text, arguments, budget);
  if (name == "find" || name == "rfind" || name == "index" || name == "count")
    return Find(text, name, arguments);
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
  if (name == "title") return Value::String(TitleMethod(text));
  return Consists(text, name);
}

Result CallListMethod(const Value::Items& items, absl::string_view name, const Arguments& arguments,
                      Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
  COPPICE_RETURN_IF_ERROR(budget->Take(items.size()));
  if (arguments.values().empty()) return BadValue(absl::StrCat(name, " needs a value"));
  const Value& wanted = arguments.values()[0];
  if (name == "count")
    return Value(static_cast<int64_t>(std::count(items.begin(), items.end(), wanted)));
  const auto found = std::find(items.begin(), items.end(), wanted);
  if (found == items.end()) return BadValue("index: the item is not found");
  return Value(static_cast<int64_t>(found - items.begin()));
}

Result CallDictMethod(const Value& dict, absl::string_view name, const Arguments& arguments,
                      Budget* budget) {
  if (name == "get") {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(2));
    if (arguments.values().empty()) return BadValue("get needs a key");
    const Value& key = arguments.values()[0];
    if (const Value* found = key.is_string() ? dict.Find(key.string()) : nullptr) return *found;
    return arguments.values().size() > 1 ? arguments.values()[1] : Value(nullptr);
  }
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  Value::Items items;
  for (const auto& entry : dict.entries()) {
    const Value key = Value::String(entry.first);
    items.push_back(name == "keys"     ? key
                    : name == "values" ? entry.second
                                       : Value::MakeList({key, entry.second}, /*tuple=*/true));
  }
  return CheckedList(std::move(items), /*tuple=*/false, budget);
}

}  // namespace

bool IsMethod(absl::string_view name) {
  return Has(kTextMethods, name) || Has(kListMethods, name) || Has(kDictMethods, name) ||
         Has(kLoopMethods, name);
}

bool HasMethod(const Value& self, absl::string_view name) {
  if (self.is_string()) return Has(kTextMethods, name);
  if (self.is_list()) return Has(kListMethods, name);
  if (self.is_dict()) return Has(kDictMethods, name);
  return self.loop() != nullptr && Has(kLoopMethods, name);
}

Result CallMethod(const Value& self, absl::string_view name, const Arguments& arguments,
                  Budget* budget) {
  if (self.is_string()) return CallTextMethod(self.string(), name, arguments, budget);
  if (self.is_list()) return CallListMethod(self.items(), name, arguments, budget);
  if (self.is_dict()) return CallDictMethod(self, name, arguments, budget);
  COPPICE_RETURN_IF_ERROR(arguments.Allow(SIZE_MAX));
  if (arguments.values().empty()) return BadValue("cycle needs values");
  return arguments.values()[self.loop()->index % arguments.values().size()];
}

}  // namespace coppice::tokenizer::jinja
