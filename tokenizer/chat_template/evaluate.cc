// The expressions of the renderer.
#include <algorithm>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "tokenizer/chat_template/renderer.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;  // as in the sandbox of Jinja2
constexpr size_t kMaxTimeFormat = 256;

}  // namespace

Value Renderer::EvaluateNode(const Expression& e) {
  const auto part = [&](size_t i) { return Evaluate(*e.parts[i]); };
  switch (e.kind) {
    case ExpressionKind::kConstant:
      return e.value;
    case ExpressionKind::kName:
      return EvaluateName(e);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return EvaluateList(e);
    case ExpressionKind::kDict:
      return EvaluateDict(e);
    case ExpressionKind::kAttribute: {
      const Value base = part(0);
      return ok() ? Checked(AttributeOf(base, e.name), e.line) : Value();
    }
    case ExpressionKind::kItem: {
      const Value base = part(0), index = part(1);
      return ok() ? Checked(ItemOf(base, index, &budget_), e.line) : Value();
    }
    case ExpressionKind::kSlice:
      return EvaluateSlice(e);
    case ExpressionKind::kCall:
      return EvaluateCall(e);
    case ExpressionKind::kFilter: {
      const Value input = part(0);
      const Arguments arguments = EvaluateArguments(e);
      return ok() ? Checked(ApplyFilter(e.name, input, arguments, &budget_), e.line) : Value();
    }
    case ExpressionKind::kTest:
      return EvaluateTest(e);
    case ExpressionKind::kNot:
      return Value(!part(0).Truth());
    case ExpressionKind::kNegate: {
      const Value value = part(0);
      if (!ok()) return Value();
      if (value.is_float()) return Value(-value.number());
      return Checked(Binary(Operation::kSubtract, Value(int64_t{0}), value, &budget_), e.line);
    }
    case ExpressionKind::kBinary: {
      const Value left = part(0), right = part(1);
      return ok() ? Checked(Binary(e.operations[0], left, right, &budget_), e.line) : Value();
    }
    case ExpressionKind::kConcat:
      return EvaluateConcat(e);
    case ExpressionKind::kCompare:
      return EvaluateCompare(e);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return EvaluateLogical(e);
    case ExpressionKind::kConditional:
      break;
  }
  return EvaluateConditional(e);
}

Value Renderer::EvaluateName(const Expression& e) {
  for (size_t i = frames_.size(); i-- > base_;) {
    const auto found = frames_[i].find(e.name);
    if (found != frames_[i].end()) return found->second;
  }
  const auto found = frames_[0].find(e.name);
  if (found != frames_[0].end()) return found->second;
  return Value::Undefined(absl::StrCat("'", e.name, "' is undefined"));
}

Value Renderer::EvaluateList(const Expression& e) {
  Value::Items items;
  for (const auto& part : e.parts) items.push_back(Evaluate(*part));
  if (!ok()) return Value();
  return Checked(CheckedList(std::move(items), e.kind == ExpressionKind::kTuple, &budget_), e.line);
}

Value Renderer::EvaluateDict(const Expression& e) {
  Value::Entries entries;
  for (size_t i = 0; i + 1 < e.parts.size(); i += 2) {
    const Value key = Evaluate(*e.parts[i]);
    Value value = Evaluate(*e.parts[i + 1]);
    if (!ok()) return Value();
    if (!key.is_string()) return Fail(e.line, BadValue("the keys of a dictionary must be texts"));
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& entry) { return entry.first == key.string(); });
    if (found == entries.end()) {
      entries.emplace_back(key.string(), std::move(value));
    } else {
      found->second = std::move(value);
    }
  }
  return Checked(Value::MakeDict(std::move(entries)), e.line);
}

Value Renderer::EvaluateSlice(const Expression& e) {
  const Value base = Evaluate(*e.parts[0]);
  Value bounds[3];
  const Value* given[3] = {nullptr, nullptr, nullptr};
  for (size_t i = 0; i < 3; ++i) {
    if (e.parts[i + 1] == nullptr) continue;
    bounds[i] = Evaluate(*e.parts[i + 1]);
    given[i] = &bounds[i];
  }
  if (!ok()) return Value();
  return Checked(SliceOf(base, given[0], given[1], given[2], &budget_), e.line);
}

Arguments Renderer::EvaluateArguments(const Expression& call) {
  Value::Items values;
  Arguments::Named named;
  for (size_t i = 1; i < call.parts.size(); ++i) values.push_back(Evaluate(*call.parts[i]));
  for (const auto& argument : call.named)
    named.emplace_back(argument.first, Evaluate(*argument.second));
  return Arguments(std::move(values), std::move(named));
}

Value Renderer::EvaluateCall(const Expression& e) {
  const Value callee = Evaluate(*e.parts[0]);
  const Arguments arguments = EvaluateArguments(e);
  if (!ok()) return Value();
  if (const Statement* macro = callee.macro()) return CallMacro(*macro, arguments, e.line);
  if (const char* function = callee.function()) return CallFunction(function, arguments, e.line);
  if (const Value::Method* method = callee.method())
    return Checked(CallMethod(method->self, method->name, arguments, &budget_), e.line);
  return Fail(e.line, BadValue(callee.is_undefined()
                                   ? callee.why_undefined()
                                   : absl::StrCat(callee.TypeName(), " cannot be called")));
}

Value Renderer::EvaluateTest(const Expression& e) {
  const Value input = Evaluate(*e.parts[0]);
  const Arguments arguments = EvaluateArguments(e);
  if (!ok()) return Value();
  const absl::StatusOr<bool> holds = ApplyTest(e.name, input, arguments, &budget_);
  return holds.ok() ? Value(*holds) : Fail(e.line, holds.status());
}

Value Renderer::EvaluateConcat(const Expression& e) {
  std::string text;
  for (const auto& part : e.parts) {
    const Value value = Evaluate(*part);
    if (!ok()) return Value();
    const absl::StatusOr<std::string> piece = TextOf(value, &budget_);
    if (!piece.ok()) return Fail(e.line, piece.status());
    text += *piece;
    if (text.size() > budget_.max_text()) break;
  }
  return Checked(CheckedText(std::move(text), &budget_), e.line);
}

// a < b < c: every pair in turn, and each value once.
Value Renderer::EvaluateCompare(const Expression& e) {
  Value left = Evaluate(*e.parts[0]);
  for (size_t i = 0; i < e.operations.size(); ++i) {
    Value right = Evaluate(*e.parts[i + 1]);
    if (!ok()) return Value();
    const absl::StatusOr<bool> holds = Compare(e.operations[i], left, right, &budget_);
    if (!holds.ok()) return Fail(e.line, holds.status());
    if (!*holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

// As in Python, the value is that of the operand that decides.
Value Renderer::EvaluateLogical(const Expression& e) {
  Value value;
  for (const auto& part : e.parts) {
    value = Evaluate(*part);
    if (!ok() || value.Truth() == (e.kind == ExpressionKind::kOr)) break;
  }
  return value;
}

Value Renderer::EvaluateConditional(const Expression& e) {
  const bool holds = Evaluate(*e.parts[1]).Truth();
  if (!ok()) return Value();
  if (holds) return Evaluate(*e.parts[0]);
  if (e.parts[2] != nullptr) return Evaluate(*e.parts[2]);
  return Value::Undefined("the condition is false and there is no else");
}

Value Renderer::CallFunction(absl::string_view name, const Arguments& arguments, int line) {
  if (name == "namespace") return MakeNamespace(arguments, line);
  if (name == "dict") {
    const Value made = MakeNamespace(arguments, line);
    return ok() ? Checked(Value::MakeDict(made.entries()), line) : Value();
  }
  if (name == "range") return MakeRange(arguments, line);
  if (name == "strftime_now") return StrftimeNow(arguments, line);
  return RaiseException(arguments);
}

Value Renderer::MakeNamespace(const Arguments& arguments, int line) {
  auto entries = std::make_shared<Value::Entries>();
  if (!arguments.values().empty()) {
    const Value& given = arguments.values()[0];
    if (arguments.values().size() > 1 || !given.is_dict())
      return Fail(line, BadValue("namespace and dict take arguments by name or one dictionary"));
    *entries = given.entries();
  }
  for (const auto& argument : arguments.named()) {
    entries->erase(std::remove_if(entries->begin(), entries->end(),
                                  [&](const auto& entry) { return entry.first == argument.first; }),
                   entries->end());
    entries->push_back(argument);
  }
  namespaces_.push_back(entries);
  return Value::Namespace(std::move(entries));
}

Value Renderer::MakeRange(const Arguments& arguments, int line) {
  const Value::Items& values = arguments.values();
  const bool integers = std::all_of(values.begin(), values.end(),
                                    [](const Value& value) { return value.is_integer(); });
  if (values.empty() || values.size() > 3 || !arguments.named().empty() || !integers)
    return Fail(line, BadValue("range takes one to three integers"));
  const int64_t start = values.size() > 1 ? values[0].integer() : 0;
  const int64_t stop = values[values.size() > 1 ? 1 : 0].integer();
  const int64_t step = values.size() > 2 ? values[2].integer() : 1;
  if (step == 0) return Fail(line, BadValue("range has the step 0"));
  Value::Items items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (items.size() == kMaxRange)
      return Fail(line, BadValue(absl::StrCat("range has more than ", kMaxRange, " items")));
    items.push_back(Value(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Checked(CheckedList(std::move(items), /*tuple=*/false, &budget_), line);
}

Value Renderer::StrftimeNow(const Arguments& arguments, int line) {
  const Value::Items& values = arguments.values();
  if (values.size() != 1 || !values[0].is_string() || values[0].string().size() > kMaxTimeFormat)
    return Fail(line, BadValue("strftime_now takes a format of at most 256 bytes"));
  const auto now = static_cast<std::time_t>(now_unix_);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[4096];
  const size_t size = std::strftime(buffer, sizeof buffer, values[0].string().c_str(), &local);
  return Checked(CheckedText(std::string(buffer, size), &budget_), line);
}

Value Renderer::RaiseException(const Arguments& arguments) {
  std::string message;
  if (!arguments.values().empty()) AppendStr(arguments.values()[0], &message);
  if (ok()) status_ = absl::FailedPreconditionError(message);
  return Value();
}

}  // namespace coppice::tokenizer::jinja
