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
      return ok() ? Checked(AttributeOf(base, e.name, &budget_), e.line) : Value();
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
    case ExpressionKind::kNegate:
    case ExpressionKind::kPositive: {
      const Value value = part(0);
      if (!ok()) return Value();
      if (value.is_undefined()) return Fail(e.line, BadValue(value.why_undefined()));
      if (!value.is_number())
        return Fail(e.line, BadValue(absl::StrCat("a sign before ", value.TypeName())));
      if (e.kind == ExpressionKind::kPositive)
        return value.is_bool() ? Value(value.integer()) : value;
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
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    const auto found = scope->variables.find(e.name);
    if (found != scope->variables.end()) return found->second;
  }
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
    if (!key.CanBeKey())
      return Fail(e.line, BadValue(absl::StrCat(key.TypeName(), " cannot be a key")));
    if (const absl::Status status = budget_.Take(entries.size() / kEntriesPerStep); !status.ok())
      return Fail(e.line, status);
    Value::SetEntry(&entries, key, std::move(value));
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
  SpreadArguments(call, &values, &named);
  return Arguments(std::move(values), std::move(named));
}

void Renderer::SpreadArguments(const Expression& call, Value::Items* values,
                               Arguments::Named* named) {
  if (call.spread != nullptr) {
    const Value list = Evaluate(*call.spread);
    absl::StatusOr<Value::Items> items = ItemsOf(list, &budget_);
    if (!items.ok()) Fail(call.line, items.status());
    if (ok()) values->insert(values->end(), items->begin(), items->end());
  }
  if (call.spread_named == nullptr) return;
  const Value dict = Evaluate(*call.spread_named);
  if (ok() && !dict.is_dict()) Fail(call.line, BadValue("** needs a dictionary"));
  if (!ok()) return;
  for (const auto& entry : dict.entries()) {
    if (!entry.first.is_string()) {
      Fail(call.line, BadValue("** needs a dictionary whose keys are texts"));
      return;
    }
    const std::string& name = entry.first.string();
    const bool twice = std::any_of(named->begin(), named->end(),
                                   [&](const auto& given) { return given.first == name; });
    if (twice) Fail(call.line, BadValue(absl::StrCat("two values for the argument '", name, "'")));
    named->emplace_back(name, entry.second);
  }
}

// caller: what a {% call %} passes to the macro; else nullptr.
Value Renderer::EvaluateCall(const Expression& e, const Value* caller) {
  const Value callee = Evaluate(*e.parts[0]);
  Arguments arguments = EvaluateArguments(e);
  if (!ok()) return Value();
  if (caller != nullptr) arguments.Add("caller", *caller);
  if (const Value::Closure* macro = callee.macro()) return CallMacro(*macro, arguments, e.line);
  if (const char* function = callee.function()) return CallFunction(function, arguments, e.line);
  if (const Value::Method* method = callee.method())
    return Checked(CallMethod(method->self, method->name, arguments, &budget_), e.line);
  if (callee.loop() != nullptr && callee.loop()->recursive != nullptr)
    return CallLoop(callee, arguments, e.line);
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
  if (name == "dict") return MakeDict(arguments, line);
  if (name == "range") return MakeRange(arguments, line);
  if (name == "strftime_now") return StrftimeNow(arguments, line);
  return RaiseException(arguments, line);
}

Value Renderer::MakeDict(const Arguments& arguments, int line) {
  Value::Entries entries;
  if (arguments.values().size() > 1) return Fail(line, BadValue("dict takes one dictionary"));
  if (!arguments.values().empty() && arguments.values()[0].is_dict()) {
    entries = arguments.values()[0].entries();
  } else if (!arguments.values().empty()) {
    const absl::StatusOr<Value::Items> pairs = ItemsOf(arguments.values()[0], &budget_);
    if (!pairs.ok()) return Fail(line, pairs.status());
    for (const Value& pair : *pairs) {
      const absl::StatusOr<Value::Items> parts = ItemsOf(pair, &budget_);
      if (!parts.ok()) return Fail(line, parts.status());
      if (parts->size() != 2) return Fail(line, BadValue("dict takes pairs"));
      if (!(*parts)[0].CanBeKey()) return Fail(line, BadValue("a list cannot be a key"));
      if (const absl::Status status = budget_.Take(1 + entries.size()); !status.ok())
        return Fail(line, status);
      Value::SetEntry(&entries, (*parts)[0], (*parts)[1]);
    }
  }
  for (const auto& argument : arguments.named())
    Value::SetEntry(&entries, Value::String(argument.first), argument.second);
  return Checked(Value::MakeDict(std::move(entries)), line);
}

Value Renderer::MakeNamespace(const Arguments& arguments, int line) {
  const Value made = MakeDict(arguments, line);
  if (!ok()) return Value();
  auto entries = std::make_shared<Value::Entries>(made.entries());
  for (const auto& entry : *entries) {
    if (entry.first.is_string() && entry.first.string().substr(0, 1) == "_")
      return Fail(line, BadValue("a namespace has no names that begin with _"));
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
  if (const absl::Status status = budget_.Take(items.size()); !status.ok())
    return Fail(line, status);
  std::string repr = absl::StrCat("range(", start, ", ", stop);
  absl::StrAppend(&repr, step == 1 ? "" : absl::StrCat(", ", step), ")");
  return Value::MakeIterable(IterableKind::kRange, std::move(items), std::move(repr));
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

Value Renderer::RaiseException(const Arguments& arguments, int line) {
  const Value* message = arguments.Get(0, "message");
  if (message == nullptr || arguments.values().size() + arguments.named().size() != 1)
    return Fail(line, BadValue("raise_exception takes a message"));
  const absl::StatusOr<std::string> text = TextOf(*message, &budget_);
  if (!text.ok()) return Fail(line, text.status());
  if (ok()) status_ = absl::FailedPreconditionError(*text);
  return Value();
}

}  // namespace coppice::tokenizer::jinja
