#include "tokenizer/chat_template/operators.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/python_format.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr int64_t kBytesPerStep = 64;

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
    return value.is_markup() ? Value::Markup(std::move(text)) : Value::String(std::move(text));
  }
  COPPICE_RETURN_IF_ERROR(budget->Take(total));
  Value::Items items;
  for (int64_t i = 0; size > 0 && i < count; ++i)
    items.insert(items.end(), value.items().begin(), value.items().end());
  return Value::MakeList(std::move(items), value.is_tuple());
}

}  // namespace

Result Escaped(const Value& value, Budget* budget) {
  if (value.is_markup()) return value;
  COPPICE_ASSIGN_OR_RETURN(const std::string text, TextOf(value, budget));
  COPPICE_RETURN_IF_ERROR(budget->TakeText(5 * static_cast<int64_t>(text.size())));
  return Value::Markup(absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}}));
}

namespace {

Result Add(const Value& a, const Value& b, Budget* budget) {
  if (a.is_markup() != b.is_markup() && a.is_string() && b.is_string()) {
    COPPICE_ASSIGN_OR_RETURN(const Value left, Escaped(a, budget));
    COPPICE_ASSIGN_OR_RETURN(const Value right, Escaped(b, budget));
    return Add(left, right, budget);
  }
  if (a.is_string() && b.is_string()) {
    COPPICE_RETURN_IF_ERROR(budget->TakeText(a.string().size() + b.string().size()));
    if (a.is_markup()) return Value::Markup(a.string() + b.string());
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

namespace {

// Takes what it costs to print a value, at least a part of it for each value inside.
absl::Status TakePrinted(const Value& value, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->Take(1));
  if (value.is_string()) return budget->TakeText(value.string().size());
  if (value.is_list() || value.is_iterable()) {
    for (const Value& item : value.items()) COPPICE_RETURN_IF_ERROR(TakePrinted(item, budget));
  } else if (value.is_dict()) {
    for (const auto& entry : value.entries()) {
      COPPICE_RETURN_IF_ERROR(TakePrinted(entry.first, budget));
      COPPICE_RETURN_IF_ERROR(TakePrinted(entry.second, budget));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> TextOf(const Value& value, Budget* budget) {
  std::string text;
  if (value.is_list() || value.is_dict() ||
      value.is_iterable()) {  // bounds the cost before it is paid
    COPPICE_RETURN_IF_ERROR(TakePrinted(value, budget));
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
      if (a.is_markup()) return BadValue("formatting of a text that is marked as safe");
      if (a.is_string()) return PercentFormat(a.string(), b, budget);
      return BadOperands("divide", a, b);
    default:
      return BadOperands(operation == Operation::kSubtract ? "subtract" : "divide", a, b);
  }
}

namespace {

// Whether an order (negative: less) is what the operation asks for.
bool Orders(Operation operation, int64_t order) {
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

// The first items that differ decide.
absl::StatusOr<bool> CompareLists(Operation operation, const Value::Items& a, const Value::Items& b,
                                  Budget* budget) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    COPPICE_RETURN_IF_ERROR(budget->Take(1));
    COPPICE_ASSIGN_OR_RETURN(const bool same, Compare(Operation::kEqual, a[i], b[i], budget));
    if (!same) return Compare(operation, a[i], b[i], budget);
  }
  return Orders(operation, static_cast<int64_t>(a.size()) - static_cast<int64_t>(b.size()));
}

}  // namespace

absl::StatusOr<bool> Equals(const Value& a, const Value& b, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->Take(1));
  if ((a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) ||
      (a.is_range() && b.is_range())) {
    const Value::Items &left = a.items(), &right = b.items();
    if (left.size() != right.size()) return false;
    for (size_t i = 0; i < left.size(); ++i) {
      COPPICE_ASSIGN_OR_RETURN(const bool same, Equals(left[i], right[i], budget));
      if (!same) return false;
    }
    return true;
  }
  if (a.is_dict() && b.is_dict()) {
    const auto size = static_cast<int64_t>(a.entries().size());
    if (size != static_cast<int64_t>(b.entries().size())) return false;
    for (const auto& entry : a.entries()) {
      COPPICE_RETURN_IF_ERROR(budget->Take(size / kEntriesPerStep));
      const Value* other = b.Find(entry.first);
      if (other == nullptr) return false;
      COPPICE_ASSIGN_OR_RETURN(const bool same, Equals(entry.second, *other, budget));
      if (!same) return false;
    }
    return true;
  }
  if (a.is_string() && b.is_string())
    COPPICE_RETURN_IF_ERROR(budget->TakeText(std::min(a.string().size(), b.string().size())));
  return a == b;
}

absl::StatusOr<size_t> FindItem(const Value::Items& items, const Value& item, Budget* budget) {
  for (size_t i = 0; i < items.size(); ++i) {
    COPPICE_ASSIGN_OR_RETURN(const bool same, Equals(items[i], item, budget));
    if (same) return i;
  }
  return items.size();
}

absl::StatusOr<bool> Compare(Operation operation, const Value& a, const Value& b, Budget* budget) {
  if (a.is_string() && b.is_string()) {
    COPPICE_RETURN_IF_ERROR(budget->TakeText(std::min(a.string().size(), b.string().size())));
  } else if (a.is_list() && b.is_list()) {
    COPPICE_RETURN_IF_ERROR(budget->Take(std::min(a.items().size(), b.items().size())));
  }
  if (operation == Operation::kEqual) return Equals(a, b, budget);
  if (operation == Operation::kUnequal) {
    COPPICE_ASSIGN_OR_RETURN(const bool same, Equals(a, b, budget));
    return !same;
  }
  if (operation == Operation::kIn) return Contains(b, a, budget);
  if (operation == Operation::kNotIn) {
    COPPICE_ASSIGN_OR_RETURN(const bool contains, Contains(b, a, budget));
    return !contains;
  }
  if (a.is_undefined()) return BadValue(a.why_undefined());
  if (b.is_undefined()) return BadValue(b.why_undefined());
  if (a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple())
    return CompareLists(operation, a.items(), b.items(), budget);
  const bool texts = a.is_string() && b.is_string();
  if (!texts && !(a.is_number() && b.is_number())) return BadOperands("order", a, b);
  if (!texts && (std::isnan(a.number()) || std::isnan(b.number()))) return false;
  const int order = texts ? a.string().compare(b.string())
                    : a.is_integer() && b.is_integer()
                        ? (a.integer() > b.integer()) - (a.integer() < b.integer())
                        : (a.number() > b.number()) - (a.number() < b.number());
  return Orders(operation, order);
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget* budget) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    if (!item.is_string()) return BadOperands("search", container, item);
    COPPICE_RETURN_IF_ERROR(budget->TakeText(container.string().size()));
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!item.CanBeKey()) return BadOperands("search", container, item);
    COPPICE_RETURN_IF_ERROR(budget->Take(container.entries().size() / kEntriesPerStep));
    return container.Find(item) != nullptr;
  }
  if (!container.is_list() && !container.is_iterable())
    return BadOperands("search", container, item);
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(container, budget));
  COPPICE_ASSIGN_OR_RETURN(const size_t found, FindItem(items, item, budget));
  return found < items.size();
}

}  // namespace coppice::tokenizer::jinja
