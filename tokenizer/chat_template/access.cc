// What values hold: attributes, items, slices, and what a for iterates over.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr int64_t kStepsOfCharacter = 8;  // each character becomes a separate value

}  // namespace

Result AttributeOf(const Value& value, const std::string& name, Budget* budget) {
  if (value.is_undefined()) return BadValue(value.why_undefined());
  if (name.substr(0, 2) == "__" || IsMutator(value, name))
    return Value::Undefined(
        absl::StrCat("access to ", name, " of ", value.TypeName(), " is not safe"));
  if (HasMethod(value, name)) return Value::MakeMethod(value, name);
  if (value.is_dict())
    COPPICE_RETURN_IF_ERROR(budget->Take(value.entries().size() / kEntriesPerStep));
  if (const Value* found = value.Find(absl::string_view(name))) return *found;
  if (value.is_group() && (name == "grouper" || name == "list"))
    return value.items()[name == "list"];
  const Value::Loop* loop = value.loop();
  if (loop == nullptr)
    return Value::Undefined(absl::StrCat(value.TypeName(), " has no '", name, "'"));
  const auto size = static_cast<int64_t>(loop->items.size());
  const auto index = static_cast<int64_t>(loop->index);
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(int64_t{loop->depth0 + 1});
  if (name == "depth0") return Value(int64_t{loop->depth0});
  if (name == "previtem")
    return index > 0 ? loop->items[index - 1] : Value::Undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? loop->items[index + 1] : Value::Undefined("there is no next item");
  return Value::Undefined(absl::StrCat("loop has no '", name, "'"));
}

Result ItemOf(const Value& value, const Value& index, Budget* budget) {
  if (value.is_undefined()) return BadValue(value.why_undefined());
  const auto missing = [&] {
    return Value::Undefined(absl::StrCat(value.TypeName(), " has no such item"));
  };
  if (value.is_dict()) {
    COPPICE_RETURN_IF_ERROR(budget->Take(value.entries().size() / kEntriesPerStep));
    if (index.is_string()) COPPICE_RETURN_IF_ERROR(budget->TakeText(index.string().size()));
    if (const Value* found = index.CanBeKey() ? value.Find(index) : nullptr) return *found;
  }
  if (index.is_string()) return AttributeOf(value, index.string(), budget);
  if (!index.is_integer()) return missing();
  int64_t at = index.integer();
  if (value.is_list() || value.is_range()) {
    const auto size = static_cast<int64_t>(value.items().size());
    if (at < 0) at += size;
    return at >= 0 && at < size ? value.items()[at] : missing();
  }
  if (!value.is_string()) return missing();
  COPPICE_RETURN_IF_ERROR(budget->TakeText(value.string().size()));
  const auto size = static_cast<int64_t>(CountCharacters(value.string()));
  if (at < 0) at += size;
  if (at < 0 || at >= size) return missing();
  return Value::String(std::string(CharacterRange(value.string(), at, at + 1)));
}

Result SliceOf(const Value& value, const Value* start, const Value* stop, const Value* step,
               Budget* budget) {
  if (value.is_undefined()) return BadValue(value.why_undefined());
  if (value.is_range()) {  // only its items: "range(1, 3)" is not printed
    return SliceOf(Value::MakeList(value.items()), start, stop, step, budget);
  }
  if (!value.is_string() && !value.is_list())
    return BadValue(absl::StrCat(value.TypeName(), " has no slices"));
  for (const Value* bound : {start, stop, step}) {
    if (bound != nullptr && !bound->is_integer() && !bound->is_none())
      return BadValue(absl::StrCat("a slice has the bound ", bound->TypeName()));
  }
  const auto given = [](const Value* bound) { return bound != nullptr && !bound->is_none(); };
  const int64_t by = given(step) ? step->integer() : 1;
  if (by == 0) return BadValue("a slice has the step 0");
  if (value.is_string()) COPPICE_RETURN_IF_ERROR(budget->TakeText(value.string().size()));
  const int64_t size = value.is_string() ? CountCharacters(value.string()) : value.items().size();
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto bound = [&](const Value* given_bound, int64_t fallback) {
    if (!given(given_bound)) return fallback;
    const int64_t at = given_bound->integer();
    return std::clamp(at < 0 ? std::max(at, -size - 1) + size : at, low, high);
  };
  const int64_t first = bound(start, by > 0 ? low : high), end = bound(stop, by > 0 ? high : low);
  if (value.is_string() && by == 1) {
    return CheckedText(std::string(CharacterRange(value.string(), first, std::max(first, end))),
                       budget);
  }
  std::vector<absl::string_view> characters;
  if (value.is_string()) {
    COPPICE_RETURN_IF_ERROR(budget->Take(value.string().size()));
    characters = Characters(value.string());
  }
  std::string text;
  Value::Items items;
  for (int64_t at = first; by > 0 ? at < end : at > end;) {
    if (value.is_string()) {
      text.append(characters[at].data(), characters[at].size());
    } else {
      items.push_back(value.items()[at]);
    }
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  if (value.is_string()) return CheckedText(std::move(text), budget);
  return CheckedList(std::move(items), value.is_tuple(), budget);
}

absl::StatusOr<Value::Items> ItemsOf(const Value& value, Budget* budget) {
  Value::Items items;
  if (value.is_undefined()) return items;
  if (value.is_list()) {
    items = value.items();
  } else if (Value::Iterable* iterable = value.iterable()) {
    items.assign(iterable->items.begin() + iterable->next, iterable->items.end());
    if (value.is_iterator()) iterable->next = iterable->items.size();
  } else if (value.is_dict()) {
    for (const auto& entry : value.entries()) items.push_back(entry.first);
  } else if (value.is_string()) {
    COPPICE_RETURN_IF_ERROR(budget->Take(kStepsOfCharacter * value.string().size()));
    for (const absl::string_view character : Characters(value.string()))
      items.push_back(Value::String(std::string(character)));
  } else {
    return BadValue(absl::StrCat("cannot iterate over ", value.TypeName()));
  }
  COPPICE_RETURN_IF_ERROR(budget->Take(items.size()));
  return items;
}

}  // namespace coppice::tokenizer::jinja
