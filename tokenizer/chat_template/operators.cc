#include "tokenizer/chat_template/operators.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr int64_t kBytesPerStep = 64;
constexpr int64_t kStepsOfCharacter = 8;  // each character becomes a separate value

// The operand is no number, or the result is not an integer of 64 bits.
absl::Status BadOperands(const char* what, const Value& a, const Value& b) {
  return BadValue(absl::StrCat("cannot ", what, " ", a.TypeName(), " and ", b.TypeName()));
}

Result Integer(bool overflow, const int64_t& value) {
  if (overflow) return BadValue("an integer is too large");
  return Value(value);
}

// Rounds towards minus infinity, as Python does. b is not 0.
int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

Result Power(int64_t base, int64_t exponent) {
  if (base == 0 && exponent < 0) return BadValue("division by zero");
  if (base == 0 || base == 1) return Value(int64_t{base == 1 || exponent == 0 ? 1 : 0});
  if (base == -1) return Value(int64_t{exponent % 2 == 0 ? 1 : -1});
  if (exponent < 0) return Value(std::pow(static_cast<double>(base), exponent));
  int64_t power = 1;
  bool overflow = false;  // at the latest after 63 steps
  for (int64_t i = 0; i < exponent && !overflow; ++i)
    overflow = __builtin_mul_overflow(power, base, &power);
  return Integer(overflow, power);
}

Result IntegerBinary(Operation operation, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (operation) {
    case Operation::kAdd:
      return Integer(__builtin_add_overflow(a, b, &result), result);
    case Operation::kSubtract:
      return Integer(__builtin_sub_overflow(a, b, &result), result);
    case Operation::kMultiply:
      return Integer(__builtin_mul_overflow(a, b, &result), result);
    case Operation::kPower:
      return Power(a, b);
    default:
      break;
  }
  if (b == 0) return BadValue("division by zero");
  if (operation == Operation::kDivide) return Value(static_cast<double>(a) / b);
  if (b == -1) {  // INT64_MIN / -1 overflows
    if (operation == Operation::kModulo) return Value(int64_t{0});
    return Integer(__builtin_sub_overflow(int64_t{0}, a, &result), result);
  }
  if (operation == Operation::kFloorDivide) return Value(FloorDivide(a, b));
  return Value(a - FloorDivide(a, b) * b);
}

Result FloatBinary(Operation operation, double a, double b) {
  switch (operation) {
    case Operation::kAdd:
      return Value(a + b);
    case Operation::kSubtract:
      return Value(a - b);
    case Operation::kMultiply:
      return Value(a * b);
    case Operation::kPower:
      return Value(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) return BadValue("division by zero");
  if (operation == Operation::kDivide) return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (operation == Operation::kModulo) return Value(rest);
  return Value(std::floor((a - rest) / b + 0.5));
}

// text * count, list * count.
Result Repeat(const Value& value, int64_t count, Budget* budget) {
  count = std::max<int64_t>(count, 0);
  const int64_t size = value.is_string() ? value.string().size() : value.items().size();
  int64_t total = 0;
  if (__builtin_mul_overflow(size, count, &total)) return BadValue("a text is too large");
  if (value.is_string()) {
    COPPICE_RETURN_IF_ERROR(budget->TakeText(total));
    std::string text;
    for (int64_t i = 0; size > 0 && i < count; ++i) text += value.string();
    return Value::String(std::move(text));
  }
  COPPICE_RETURN_IF_ERROR(budget->Take(total));
  Value::Items items;
  for (int64_t i = 0; size > 0 && i < count; ++i)
    items.insert(items.end(), value.items().begin(), value.items().end());
  return Value::MakeList(std::move(items), value.is_tuple());
}

Result Add(const Value& a, const Value& b, Budget* budget) {
  if (a.is_string() && b.is_string()) {
    COPPICE_RETURN_IF_ERROR(budget->TakeText(a.string().size() + b.string().size()));
    return Value::String(a.string() + b.string());
  }
  if (a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) {
    Value::Items items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return CheckedList(std::move(items), a.is_tuple(), budget);
  }
  return BadOperands("add", a, b);
}

}  // namespace

absl::Status BadValue(absl::string_view why) { return absl::InvalidArgumentError(why); }

absl::Status Budget::Take(int64_t steps) {
  steps_ -= std::min(steps, steps_ + 1);
  if (steps_ >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError("the template takes too many steps");
}

absl::Status Budget::TakeText(int64_t bytes) {
  if (bytes > bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the template makes a text of more than ", bytes_, " bytes"));
  }
  return Take(1 + bytes / kBytesPerStep);
}

absl::StatusOr<std::string> TextOf(const Value& value, Budget* budget) {
  std::string text;
  if (value.is_list() || value.is_dict()) {  // bounds the cost before it is paid
    COPPICE_ASSIGN_OR_RETURN(const Value json, ToJson(value, Arguments({}, {}), budget));
  }
  if (!AppendStr(value, &text)) return BadValue(absl::StrCat("cannot print ", value.TypeName()));
  COPPICE_RETURN_IF_ERROR(budget->TakeText(text.size()));
  return text;
}

Result CheckedText(std::string text, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->TakeText(text.size()));
  return Value::String(std::move(text));
}

Result CheckedList(Value::Items items, bool tuple, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->Take(items.size()));
  Value list = Value::MakeList(std::move(items), tuple);
  if (list.depth() <= kMaxValueDepth) return list;
  return absl::ResourceExhaustedError(
      absl::StrCat("lists are nested deeper than ", kMaxValueDepth, " levels"));
}

Result Binary(Operation operation, const Value& a, const Value& b, Budget* budget) {
  if (a.is_undefined()) return BadValue(a.why_undefined());
  if (b.is_undefined()) return BadValue(b.why_undefined());
  if (a.is_integer() && b.is_integer()) return IntegerBinary(operation, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return FloatBinary(operation, a.number(), b.number());
  switch (operation) {
    case Operation::kAdd:
      return Add(a, b, budget);
    case Operation::kMultiply:
      if (b.is_integer() && (a.is_string() || a.is_list())) return Repeat(a, b.integer(), budget);
      if (a.is_integer() && (b.is_string() || b.is_list())) return Repeat(b, a.integer(), budget);
      return BadOperands("multiply", a, b);
    case Operation::kModulo:
      if (a.is_string()) return BadValue("formatting with % is not supported");
      return BadOperands("divide", a, b);
    default:
      return BadOperands(operation == Operation::kSubtract ? "subtract" : "divide", a, b);
  }
}

absl::StatusOr<bool> Compare(Operation operation, const Value& a, const Value& b, Budget* budget) {
  if (a.is_string() && b.is_string()) {
    COPPICE_RETURN_IF_ERROR(budget->TakeText(std::min(a.string().size(), b.string().size())));
  } else if (a.is_list() && b.is_list()) {
    COPPICE_RETURN_IF_ERROR(budget->Take(std::min(a.items().size(), b.items().size())));
  }
  if (operation == Operation::kEqual) return a == b;
  if (operation == Operation::kUnequal) return a != b;
  if (operation == Operation::kIn) return Contains(b, a, budget);
  if (operation == Operation::kNotIn) {
    COPPICE_ASSIGN_OR_RETURN(const bool contains, Contains(b, a, budget));
    return !contains;
  }
  if (a.is_undefined()) return BadValue(a.why_undefined());
  if (b.is_undefined()) return BadValue(b.why_undefined());
  const bool texts = a.is_string() && b.is_string();
  if (!texts && !(a.is_number() && b.is_number())) return BadOperands("order", a, b);
  const int order = texts ? a.string().compare(b.string())
                    : a.is_integer() && b.is_integer()
                        ? (a.integer() > b.integer()) - (a.integer() < b.integer())
                        : (a.number() > b.number()) - (a.number() < b.number());
  if (!texts && (std::isnan(a.number()) || std::isnan(b.number()))) return false;
  switch (operation) {
    case Operation::kLess:
      return order < 0;
    case Operation::kLessEqual:
      return order <= 0;
    case Operation::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget* budget) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    if (!item.is_string()) return BadOperands("search", container, item);
    COPPICE_RETURN_IF_ERROR(budget->TakeText(container.string().size()));
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_dict()) return item.is_string() && container.Find(item.string()) != nullptr;
  if (!container.is_list()) return BadOperands("search", container, item);
  COPPICE_RETURN_IF_ERROR(budget->Take(container.items().size()));
  return std::find(container.items().begin(), container.items().end(), item) !=
         container.items().end();
}

Result AttributeOf(const Value& value, const std::string& name) {
  if (value.is_undefined()) return BadValue(value.why_undefined());
  if (name.substr(0, 2) == "__") return BadValue(absl::StrCat("access to ", name, " is not safe"));
  if (HasMethod(value, name)) return Value::MakeMethod(value, name);
  if (const Value* found = value.Find(name)) return *found;
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
  if (index.is_string()) {
    if (const Value* found = value.is_dict() ? value.Find(index.string()) : nullptr) return *found;
    return AttributeOf(value, index.string());
  }
  if (!index.is_integer()) return missing();
  int64_t at = index.integer();
  if (value.is_list()) {
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
  if (!value.is_string() && !value.is_list())
    return Value::Undefined(absl::StrCat(value.TypeName(), " has no slices"));
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
  } else if (value.is_dict()) {
    for (const auto& entry : value.entries()) items.push_back(Value::String(entry.first));
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
