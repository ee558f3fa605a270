#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr absl::string_view kListMethods[] = {"copy", "count", "index"};
constexpr absl::string_view kTupleMethods[] = {"count", "index"};
constexpr absl::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};
constexpr absl::string_view kLoopMethods[] = {"changed", "cycle"};
constexpr absl::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
constexpr absl::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
// Methods of Python's texts, lists, dictionaries and numbers that are not there.
constexpr absl::string_view kUnservedMethods[] = {
    "as_integer_ratio", "bit_count",  "casefold", "bit_length", "conjugate",
    "encode",           "format_map", "fromhex",  "fromkeys",   "hex",
    "is_integer",       "maketrans",  "to_bytes", "translate"};

template <size_t n>
bool Has(const absl::string_view (&names)[n], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Result CallListMethod(const Value::Items& items, absl::string_view name, const Arguments& arguments,
                      Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->Take(items.size()));
  if (name == "copy") {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
    return Value::MakeList(items);
  }
  COPPICE_RETURN_IF_ERROR(arguments.Allow(1));
  if (arguments.values().empty()) return BadValue(absl::StrCat(name, " needs a value"));
  const Value& wanted = arguments.values()[0];
  if (name == "count") {
    int64_t count = 0;
    for (const Value& item : items) {
      COPPICE_ASSIGN_OR_RETURN(const bool same, Equals(item, wanted, budget));
      count += same;
    }
    return Value(count);
  }
  COPPICE_ASSIGN_OR_RETURN(const size_t found, FindItem(items, wanted, budget));
  if (found == items.size()) return BadValue("index: the item is not found");
  return Value(static_cast<int64_t>(found));
}

Result CallDictMethod(const Value& dict, absl::string_view name, const Arguments& arguments,
                      Budget* budget) {
  if (name == "get") {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(2));
    if (arguments.values().empty()) return BadValue("get needs a key");
    const Value& key = arguments.values()[0];
    if (!key.CanBeKey()) return BadValue(absl::StrCat(key.TypeName(), " cannot be a key"));
    COPPICE_RETURN_IF_ERROR(budget->Take(dict.entries().size() / kEntriesPerStep));
    if (const Value* found = dict.Find(key)) return *found;
    return arguments.values().size() > 1 ? arguments.values()[1] : Value(nullptr);
  }
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (name == "copy") return dict;
  Value::Items items;
  for (const auto& entry : dict.entries()) {
    const Value& key = entry.first;
    items.push_back(name == "keys"     ? key
                    : name == "values" ? entry.second
                                       : Value::MakeList({key, entry.second}, /*tuple=*/true));
  }
  COPPICE_RETURN_IF_ERROR(budget->Take(items.size()));
  return Value::MakeIterable(IterableKind::kView, std::move(items), absl::StrCat("dict_", name));
}

// Whether the value could hold a loop, which then must not remember it.
absl::StatusOr<bool> HoldsLoop(const Value& value, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->Take(1));
  if (value.is_list() || value.is_iterable()) {
    for (const Value& item : value.items()) {
      COPPICE_ASSIGN_OR_RETURN(const bool holds, HoldsLoop(item, budget));
      if (holds) return true;
    }
    return false;
  }
  if (value.is_dict()) {
    for (const auto& entry : value.entries()) {
      COPPICE_ASSIGN_OR_RETURN(const bool holds, HoldsLoop(entry.second, budget));
      if (holds) return true;
    }
    return false;
  }
  return value.loop() != nullptr || value.is_namespace() || value.macro() != nullptr ||
         value.method() != nullptr;
}

Result CallLoopMethod(Value::Loop* loop, absl::string_view name, const Arguments& arguments,
                      Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(SIZE_MAX));
  const Value::Items& values = arguments.values();
  if (name == "cycle") {
    if (values.empty()) return BadValue("cycle needs values");
    return values[loop->index % values.size()];
  }
  const Value given = Value::MakeList(values);
  COPPICE_ASSIGN_OR_RETURN(const bool cyclic, HoldsLoop(given, budget));
  if (cyclic) return BadValue("changed cannot compare loops, namespaces and macros");
  COPPICE_ASSIGN_OR_RETURN(const bool same,
                           Equals(given, Value::MakeList(loop->last_changed), budget));
  const bool changed = !loop->changed || !same;
  loop->changed = true;
  loop->last_changed = values;
  return Value(changed);
}

// A text that is marked as safe keeps the mark, and escapes what is put into it.
Result CallMarkupMethod(const Value& self, absl::string_view name, const Arguments& arguments,
                        Budget* budget) {
  if (name == "join" || name == "replace" || name == "format" || name == "ljust" ||
      name == "rjust" || name == "center")
    return BadValue(absl::StrCat(name, " of a text that is marked as safe is not supported"));
  COPPICE_ASSIGN_OR_RETURN(Value result, CallTextMethod(self.string(), name, arguments, budget));
  if (result.is_string()) return Value::Markup(result.string());
  if (!result.is_list()) return result;
  Value::Items items;
  for (const Value& item : result.items()) items.push_back(Value::Markup(item.string()));
  return Value::MakeList(std::move(items), result.is_tuple());
}

}  // namespace

bool IsMethod(absl::string_view name) {
  return IsTextMethod(name) || Has(kListMethods, name) || Has(kDictMethods, name) ||
         Has(kLoopMethods, name);
}

bool IsUnservedMethod(absl::string_view name) { return Has(kUnservedMethods, name); }

bool IsMutator(const Value& self, absl::string_view name) {
  return (self.is_dict() && Has(kDictMutators, name)) ||
         (self.is_list() && !self.is_tuple() && Has(kListMutators, name));
}

bool HasMethod(const Value& self, absl::string_view name) {
  if (self.is_string()) return IsTextMethod(name);
  if (self.is_list()) return self.is_tuple() ? Has(kTupleMethods, name) : Has(kListMethods, name);
  if (self.is_dict()) return Has(kDictMethods, name);
  return self.loop() != nullptr && Has(kLoopMethods, name);
}

Result CallMethod(const Value& self, absl::string_view name, const Arguments& arguments,
                  Budget* budget) {
  if (self.is_markup()) return CallMarkupMethod(self, name, arguments, budget);
  if (self.is_string()) return CallTextMethod(self.string(), name, arguments, budget);
  if (self.is_list()) return CallListMethod(self.items(), name, arguments, budget);
  if (self.is_dict()) return CallDictMethod(self, name, arguments, budget);
  return CallLoopMethod(self.loop(), name, arguments, budget);
}

}  // namespace coppice::tokenizer::jinja
