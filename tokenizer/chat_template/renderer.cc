#include "tokenizer/chat_template/renderer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace coppice::tokenizer::jinja {
namespace {

// Evaluations and blocks inside of each other. Bounds the stack: a level needs less than 2 KB.
constexpr int kMaxDepth = 800;

// Counts a level as long as it lives.
class Level {
 public:
  explicit Level(int* depth) : depth_(*depth) { ++depth_; }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& depth_;
};

}  // namespace

Renderer::Renderer(Value::Entries variables, Budget budget, int64_t now_unix)
    : budget_(budget), now_unix_(now_unix) {
  frames_.emplace_back();
  for (const char* name : {"dict", "namespace", "raise_exception", "range", "strftime_now"})
    Set(name, Value::Function(name));
  for (auto& variable : variables) Set(variable.first, std::move(variable.second));
}

Renderer::~Renderer() {
  for (const auto& entries : namespaces_) entries->clear();
}

absl::StatusOr<std::string> Renderer::Render(const Block& block) {
  RunBlock(block);
  if (!ok()) return status_;
  return std::move(out_);
}

Value Renderer::Fail(int line, const absl::Status& why) {
  if (ok()) status_ = absl::Status(why.code(), absl::StrCat("line ", line, ": ", why.message()));
  return Value();
}

Value Renderer::Checked(absl::StatusOr<Value> value, int line) {
  if (!value.ok()) return Fail(line, value.status());
  if (value->depth() > kMaxValueDepth) return Fail(line, BadValue("values are nested too deeply"));
  return *std::move(value);
}

bool Renderer::Print(absl::string_view text, int line) {
  out_.append(text.data(), text.size());
  absl::Status status = budget_.TakeText(text.size());
  if (out_.size() > budget_.max_text()) status = budget_.TakeText(out_.size());
  if (!status.ok()) Fail(line, status);
  return ok();
}

Renderer::Flow Renderer::RunBlock(const Block& block) {
  const Level level(&depth_);
  for (const auto& statement : block) {
    if (const Flow flow = Run(*statement); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Renderer::Flow Renderer::Run(const Statement& statement) {
  if (const absl::Status status = budget_.Take(1); !status.ok()) Fail(statement.line, status);
  if (depth_ > kMaxDepth) Fail(statement.line, BadValue("macros are nested too deeply"));
  if (!ok()) return Flow::kFail;
  switch (statement.kind) {
    case StatementKind::kText:
      return Print(statement.text, statement.line) ? Flow::kNext : Flow::kFail;
    case StatementKind::kOutput:
      return RunOutput(statement);
    case StatementKind::kIf:
      return RunIf(statement);
    case StatementKind::kFor:
      return RunFor(statement);
    case StatementKind::kSet:
      return RunSet(statement);
    case StatementKind::kSetBlock:
      return RunSetBlock(statement);
    case StatementKind::kMacro:
      Set(statement.text, Value::Macro(&statement));
      return Flow::kNext;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
    case StatementKind::kBlock:
      break;
  }
  return RunBlock(statement.body);
}

Renderer::Flow Renderer::RunOutput(const Statement& statement) {
  const Value value = Evaluate(*statement.expression);
  if (!ok()) return Flow::kFail;
  if (value.is_string()) return Print(value.string(), statement.line) ? Flow::kNext : Flow::kFail;
  const absl::StatusOr<std::string> text = TextOf(value, &budget_);
  if (!text.ok()) Fail(statement.line, text.status());
  return ok() && Print(*text, statement.line) ? Flow::kNext : Flow::kFail;
}

Renderer::Flow Renderer::RunIf(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    const bool taken = branch.condition == nullptr || Evaluate(*branch.condition).Truth();
    if (!ok()) return Flow::kFail;
    if (taken) return RunBlock(branch.body);
  }
  return Flow::kNext;
}

bool Renderer::LoopItems(const Statement& statement, Value::Items* items) {
  const Value list = Evaluate(*statement.expression);
  if (!ok()) return false;
  absl::StatusOr<Value::Items> all = ItemsOf(list, &budget_);
  if (!all.ok()) {
    Fail(statement.line, all.status());
    return false;
  }
  if (statement.condition == nullptr) {
    *items = *std::move(all);
    return true;
  }
  for (Value& item : *all) {
    frames_.emplace_back();
    const bool kept = Assign(statement, item) && Evaluate(*statement.condition).Truth();
    frames_.pop_back();
    if (!ok()) return false;
    if (kept) items->push_back(std::move(item));
  }
  return true;
}

Renderer::Flow Renderer::RunFor(const Statement& statement) {
  Value::Items items;
  if (!LoopItems(statement, &items)) return Flow::kFail;
  frames_.emplace_back();
  const Flow flow =
      items.empty() ? RunBlock(statement.other) : RunLoop(statement, std::move(items));
  frames_.pop_back();
  return flow;
}

Renderer::Flow Renderer::RunLoop(const Statement& statement, Value::Items items) {
  auto loop = std::make_shared<Value::Loop>();
  loop->items = std::move(items);
  loop->depth0 = loops_++;
  const Value variable = Value::MakeLoop(loop);
  Flow flow = Flow::kNext;
  for (; loop->index < loop->items.size(); ++loop->index) {
    frames_.back().clear();
    Set("loop", variable);
    flow = Assign(statement, loop->items[loop->index]) ? RunBlock(statement.body) : Flow::kFail;
    if (flow == Flow::kBreak || flow == Flow::kFail) break;
  }
  --loops_;
  return flow == Flow::kFail ? Flow::kFail : Flow::kNext;
}

bool Renderer::Assign(const Statement& statement, const Value& value) {
  const std::vector<std::string>& names = statement.names;
  if (names.size() == 1) {
    Set(names[0], value);
    return true;
  }
  const absl::StatusOr<Value::Items> parts = ItemsOf(value, &budget_);
  if (!parts.ok()) {
    Fail(statement.line, parts.status());
  } else if (parts->size() != names.size()) {
    Fail(statement.line,
         BadValue(absl::StrCat("expected ", names.size(), " values, got ", parts->size())));
  } else {
    for (size_t i = 0; i < names.size(); ++i) Set(names[i], (*parts)[i]);
  }
  return ok();
}

Renderer::Flow Renderer::RunSet(const Statement& statement) {
  const Value value = Evaluate(*statement.expression);
  if (!ok()) return Flow::kFail;
  if (statement.attribute.empty()) return Assign(statement, value) ? Flow::kNext : Flow::kFail;
  Expression name;
  name.kind = ExpressionKind::kName;
  name.name = statement.names[0];
  const Value target = EvaluateName(name);
  if (!target.is_namespace()) {
    Fail(statement.line, BadValue(absl::StrCat(name.name, " is no namespace")));
    return Flow::kFail;
  }
  Value::Entries& entries = target.mutable_entries();
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.first == statement.attribute;
  });
  if (found == entries.end()) {
    entries.emplace_back(statement.attribute, value);
  } else {
    found->second = value;
  }
  return Flow::kNext;
}

Renderer::Flow Renderer::RunSetBlock(const Statement& statement) {
  std::string outer = std::move(out_);
  out_.clear();
  frames_.emplace_back();
  const Flow flow = RunBlock(statement.body);
  // The filters begin with a name that is empty, which is the text of the body.
  Set("", Value::String(std::move(out_)));
  const Value value = ok() ? Evaluate(*statement.expression) : Value();
  frames_.pop_back();
  out_ = std::move(outer);
  if (!ok()) return Flow::kFail;
  Set(statement.names[0], value);
  return flow;
}

Value Renderer::Evaluate(const Expression& expression) {
  const Level level(&depth_);
  if (const absl::Status status = budget_.Take(1); !status.ok()) Fail(expression.line, status);
  if (depth_ > kMaxDepth) Fail(expression.line, BadValue("macros are nested too deeply"));
  return ok() ? EvaluateNode(expression) : Value();
}

Value Renderer::CallMacro(const Statement& macro, const Arguments& arguments, int line) {
  const Level level(&depth_);
  const size_t count = macro.names.size(), first_default = count - macro.defaults.size();
  if (const absl::Status status = arguments.Allow(
          count, std::vector<absl::string_view>(macro.names.begin(), macro.names.end()));
      !status.ok()) {
    return Fail(line, status);
  }
  const size_t outer_base = std::exchange(base_, frames_.size());
  const int outer_loops = std::exchange(loops_, 0);
  std::string outer = std::move(out_);
  out_.clear();
  frames_.emplace_back();
  for (size_t i = 0; i < count && ok(); ++i) {
    const Value* given = arguments.Get(i, macro.names[i]);
    Set(macro.names[i],
        given != nullptr ? *given
        : i >= first_default
            ? Evaluate(*macro.defaults[i - first_default])
            : Value::Undefined(absl::StrCat("parameter '", macro.names[i], "' was not provided")));
  }
  if (ok()) RunBlock(macro.body);
  frames_.pop_back();
  base_ = outer_base;
  loops_ = outer_loops;
  std::swap(outer, out_);
  return ok() ? Value::String(std::move(outer)) : Value();
}

}  // namespace coppice::tokenizer::jinja
