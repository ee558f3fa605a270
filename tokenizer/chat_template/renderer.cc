#include "tokenizer/chat_template/renderer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace coppice::tokenizer::jinja {
namespace {

// Evaluations and blocks inside of each other. Bounds the stack: a level needs less than 2 KB.
constexpr int kMaxDepth = 800;
// What a macro keeps lives until the end of the rendering.
constexpr int64_t kStepsOfMacro = 16;

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
    : budget_(budget), now_unix_(now_unix), root_(NewScope(nullptr)), scope_(root_) {
  for (const char* name : kFunctions) Set(name, Value::Function(name));
  for (auto& variable : variables) Set(variable.first.string(), std::move(variable.second));
}

Renderer::~Renderer() {
  for (const auto& scope : kept_) scope->variables.clear();
  for (const auto& entries : namespaces_) entries->clear();
}

std::shared_ptr<Renderer::Scope> Renderer::NewScope(std::shared_ptr<Scope> outer) {
  auto scope = std::make_shared<Scope>();
  scope->outer = std::move(outer);
  return scope;
}

std::shared_ptr<Renderer::Scope> Renderer::KeptScope() {
  if (!std::exchange(scope_->kept, true)) kept_.push_back(scope_);
  return scope_;
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
    case StatementKind::kFilterBlock:
      return RunText(statement);
    case StatementKind::kWith:
      return RunWith(statement);
    case StatementKind::kMacro:
      if (const absl::Status status = budget_.Take(kStepsOfMacro); !status.ok())
        Fail(statement.line, status);
      Set(statement.text, Value::Macro(&statement, KeptScope()));
      return ok() ? Flow::kNext : Flow::kFail;
    case StatementKind::kCallBlock:
      return RunCallBlock(statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
    case StatementKind::kBlock:
      break;
  }
  Enter();
  const Flow flow = RunBlock(statement.body);
  Leave();
  return flow;
}

Renderer::Flow Renderer::RunOutput(const Statement& statement) {
  const Value value = Evaluate(*statement.expression);
  return ok() && PrintValue(value, statement.line) ? Flow::kNext : Flow::kFail;
}

bool Renderer::PrintValue(const Value& value, int line) {
  if (value.is_string()) return Print(value.string(), line);
  const absl::StatusOr<std::string> text = TextOf(value, &budget_);
  if (!text.ok()) Fail(line, text.status());
  return ok() && Print(*text, line);
}

Renderer::Flow Renderer::RunIf(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    const bool taken = branch.condition == nullptr || Evaluate(*branch.condition).Truth();
    if (!ok()) return Flow::kFail;
    if (taken) return RunBlock(branch.body);
  }
  return Flow::kNext;
}

bool Renderer::LoopItems(const Statement& statement, const Value& list, Value::Items* items) {
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
    Enter();
    const bool kept = Assign(*statement.target, item) && Evaluate(*statement.condition).Truth();
    Leave();
    if (!ok()) return false;
    if (kept) items->push_back(std::move(item));
  }
  return true;
}

Renderer::Flow Renderer::RunFor(const Statement& statement) {
  const Value list = Evaluate(*statement.expression);
  Value::Items items;
  if (!ok() || !LoopItems(statement, list, &items)) return Flow::kFail;
  return RunLoop(statement, std::move(items), /*depth0=*/0);
}

Renderer::Flow Renderer::RunLoop(const Statement& statement, Value::Items items, int depth0) {
  if (items.empty()) {
    Enter();
    const Flow flow = RunBlock(statement.other);
    Leave();
    return flow;
  }
  auto loop = std::make_shared<Value::Loop>();
  loop->items = std::move(items);
  loop->depth0 = depth0;
  if (statement.recursive) {
    loop->recursive = &statement;
    loop->scope = KeptScope();
  }
  const Value variable = Value::MakeLoop(loop);
  Flow flow = Flow::kNext;
  Enter();
  for (; loop->index < loop->items.size(); ++loop->index) {
    scope_->variables.clear();
    Set("loop", variable);
    flow = Assign(*statement.target, loop->items[loop->index]) ? RunBlock(statement.body)
                                                               : Flow::kFail;
    if (flow == Flow::kBreak || flow == Flow::kFail) break;
  }
  Leave();
  return flow == Flow::kFail ? Flow::kFail : Flow::kNext;
}

Value Renderer::CallLoop(const Value& loop, const Arguments& arguments, int line) {
  const Level level(&depth_);
  const Statement& statement = *loop.loop()->recursive;
  if (arguments.values().size() != 1 || !arguments.named().empty())
    return Fail(line, BadValue("a recursive loop is called with one list"));
  std::shared_ptr<Scope> outer_scope =
      std::exchange(scope_, std::static_pointer_cast<Scope>(loop.loop()->scope));
  std::string outer = std::exchange(out_, "");
  Value::Items items;
  if (LoopItems(statement, arguments.values()[0], &items))
    RunLoop(statement, std::move(items), loop.loop()->depth0 + 1);
  scope_ = std::move(outer_scope);
  std::swap(outer, out_);
  return ok() ? Value::String(std::move(outer)) : Value();
}

bool Renderer::Assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) {
    Set(target.name, value);
    return true;
  }
  if (target.kind == ExpressionKind::kAttribute) return AssignAttribute(target, value);
  const absl::StatusOr<Value::Items> parts = ItemsOf(value, &budget_);
  if (!parts.ok()) {
    Fail(target.line, parts.status());
  } else if (parts->size() != target.parts.size()) {
    Fail(target.line,
         BadValue(absl::StrCat("expected ", target.parts.size(), " values, got ", parts->size())));
  } else {
    for (size_t i = 0; i < parts->size() && ok(); ++i) Assign(*target.parts[i], (*parts)[i]);
  }
  return ok();
}

bool Renderer::AssignAttribute(const Expression& target, const Value& value) {
  const Value owner = EvaluateName(*target.parts[0]);
  if (!owner.is_namespace()) {
    Fail(target.line, BadValue(absl::StrCat(target.parts[0]->name, " is no namespace")));
    return false;
  }
  if (target.name[0] == '_') {
    Fail(target.line, BadValue("a namespace has no names that begin with _"));
    return false;
  }
  Value::SetEntry(&owner.mutable_entries(), Value::String(target.name), value);
  return true;
}

Renderer::Flow Renderer::RunSet(const Statement& statement) {
  const Value value = Evaluate(*statement.expression);
  return ok() && Assign(*statement.target, value) ? Flow::kNext : Flow::kFail;
}

Renderer::Flow Renderer::RunText(const Statement& statement) {
  std::string outer = std::exchange(out_, "");
  Enter();
  const Flow flow = RunBlock(statement.body);
  // The filters begin with a name that is empty, which is the text of the body.
  Set("", Value::String(std::move(out_)));
  const Value value = ok() ? Evaluate(*statement.expression) : Value();
  Leave();
  out_ = std::move(outer);
  if (!ok()) return Flow::kFail;
  const bool done = statement.kind == StatementKind::kFilterBlock
                        ? PrintValue(value, statement.line)
                        : Assign(*statement.target, value);
  return done ? flow : Flow::kFail;
}

Renderer::Flow Renderer::RunWith(const Statement& statement) {
  Value::Items values;  // all are evaluated in the outer scope
  for (const Assignment& assignment : statement.assignments)
    values.push_back(Evaluate(*assignment.value));
  Enter();
  for (size_t i = 0; i < values.size() && ok(); ++i)
    Assign(*statement.assignments[i].target, values[i]);
  const Flow flow = ok() ? RunBlock(statement.body) : Flow::kFail;
  Leave();
  return flow;
}

Renderer::Flow Renderer::RunCallBlock(const Statement& statement) {
  if (const absl::Status status = budget_.Take(kStepsOfMacro); !status.ok())
    Fail(statement.line, status);
  const Value caller = Value::Macro(&statement, KeptScope());
  const Value value = ok() ? EvaluateCall(*statement.expression, &caller) : Value();
  return ok() && PrintValue(value, statement.line) ? Flow::kNext : Flow::kFail;
}

Value Renderer::Evaluate(const Expression& expression) {
  const Level level(&depth_);
  if (const absl::Status status = budget_.Take(1); !status.ok()) Fail(expression.line, status);
  if (depth_ > kMaxDepth) Fail(expression.line, BadValue("macros are nested too deeply"));
  return ok() ? EvaluateNode(expression) : Value();
}

bool Renderer::SetParameters(const Statement& macro, const Arguments& arguments, int line) {
  const size_t count = macro.names.size(), first_default = count - macro.defaults.size();
  const Value::Items& values = arguments.values();
  Value::Items rest;
  if (values.size() > count) rest.assign(values.begin() + count, values.end());
  Value::Entries rest_named;
  const Value* caller = nullptr;
  for (const auto& named : arguments.named()) {
    const auto found = std::find(macro.names.begin(), macro.names.end(), named.first);
    if (found == macro.names.end()) {
      if (named.first == "caller" && macro.uses_caller) {
        caller = &named.second;
      } else {
        rest_named.emplace_back(Value::String(named.first), named.second);
      }
    } else if (found - macro.names.begin() < values.size()) {
      Fail(line, BadValue(absl::StrCat("two values for the argument '", named.first, "'")));
    }
  }
  if (!rest.empty() && !macro.uses_varargs)
    Fail(line, BadValue(absl::StrCat("at most ", count, " arguments, got ", values.size())));
  if (!rest_named.empty() && !macro.uses_kwargs)
    Fail(line, BadValue(absl::StrCat("there is no argument '", rest_named[0].first.string(), "'")));
  if (macro.uses_caller)
    Set("caller", caller != nullptr ? *caller : Value::Undefined("No caller defined"));
  if (macro.uses_kwargs) Set("kwargs", Checked(Value::MakeDict(std::move(rest_named)), line));
  if (macro.uses_varargs)
    Set("varargs", Checked(CheckedList(std::move(rest), /*tuple=*/true, &budget_), line));
  for (size_t i = 0; i < count && ok(); ++i) {
    const Value* given = arguments.Get(i, macro.names[i]);
    Set(macro.names[i],
        given != nullptr ? *given
        : i >= first_default
            ? Evaluate(*macro.defaults[i - first_default])
            : Value::Undefined(absl::StrCat("parameter '", macro.names[i], "' was not provided")));
  }
  return ok();
}

Value Renderer::CallMacro(const Value::Closure& closure, const Arguments& arguments, int line) {
  const Level level(&depth_);
  const Statement& macro = *closure.macro;
  std::shared_ptr<Scope> outer_scope =
      std::exchange(scope_, NewScope(std::static_pointer_cast<Scope>(closure.scope)));
  std::string outer = std::exchange(out_, "");
  if (SetParameters(macro, arguments, line)) RunBlock(macro.body);
  scope_ = std::move(outer_scope);
  std::swap(outer, out_);
  return ok() ? Value::String(std::move(outer)) : Value();
}

}  // namespace coppice::tokenizer::jinja
