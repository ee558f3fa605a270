// Runs the syntax tree of a chat template over its variables. One renderer for one rendering.
// Called by ChatTemplate. Thread-compatible.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/syntax.h"

namespace coppice::tokenizer::jinja {

class Renderer {
 public:
  // now_unix: what strftime_now shows, in local time.
  Renderer(Value::Entries variables, Budget budget, int64_t now_unix);
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  // The text. Errors name the line. FailedPrecondition: the template called raise_exception, and
  // the message is its own.
  absl::StatusOr<std::string> Render(const Block& block);

 private:
  enum class Flow { kNext, kBreak, kContinue, kFail };
  // Variables of a block. Macros keep the scope that they are defined in.
  struct Scope {
    absl::flat_hash_map<std::string, Value> variables;
    std::shared_ptr<Scope> outer;
    bool kept = false;
  };

  Flow RunBlock(const Block& block);
  Flow Run(const Statement& statement);
  Flow RunOutput(const Statement& statement);
  Flow RunIf(const Statement& statement);
  Flow RunFor(const Statement& statement);
  Flow RunLoop(const Statement& statement, Value::Items items, int depth0);
  Flow RunSet(const Statement& statement);
  Flow RunText(const Statement& statement);  // a set block or a filter block
  Flow RunWith(const Statement& statement);
  Flow RunCallBlock(const Statement& statement);
  // The items of a for that pass its condition.
  bool LoopItems(const Statement& statement, const Value& list, Value::Items* items);
  bool Assign(const Expression& target, const Value& value);
  bool AssignAttribute(const Expression& target, const Value& value);
  void Set(const std::string& name, Value value) { scope_->variables[name] = std::move(value); }
  bool Print(absl::string_view text, int line);
  bool PrintValue(const Value& value, int line);
  void Enter() { scope_ = NewScope(scope_); }
  void Leave() { scope_ = std::shared_ptr<Scope>(scope_->outer); }
  static std::shared_ptr<Scope> NewScope(std::shared_ptr<Scope> outer);
  // The current scope, which then lives until the end.
  std::shared_ptr<Scope> KeptScope();

  Value Evaluate(const Expression& expression);
  Value EvaluateNode(const Expression& expression);
  Value EvaluateName(const Expression& expression);
  Value EvaluateList(const Expression& expression);
  Value EvaluateDict(const Expression& expression);
  Value EvaluateSlice(const Expression& expression);
  Value EvaluateCall(const Expression& expression, const Value* caller = nullptr);
  Value EvaluateTest(const Expression& expression);
  Value EvaluateConcat(const Expression& expression);
  Value EvaluateCompare(const Expression& expression);
  Value EvaluateLogical(const Expression& expression);
  Value EvaluateConditional(const Expression& expression);
  // The arguments of a call; parts[0] is what is called.
  Arguments EvaluateArguments(const Expression& call);
  void SpreadArguments(const Expression& call, Value::Items* values, Arguments::Named* named);
  Value CallMacro(const Value::Closure& macro, const Arguments& arguments, int line);
  bool SetParameters(const Statement& macro, const Arguments& arguments, int line);
  // loop(...) in a recursive for.
  Value CallLoop(const Value& loop, const Arguments& arguments, int line);
  Value CallFunction(absl::string_view name, const Arguments& arguments, int line);
  Value MakeNamespace(const Arguments& arguments, int line);
  Value MakeDict(const Arguments& arguments, int line);
  Value MakeRange(const Arguments& arguments, int line);
  Value StrftimeNow(const Arguments& arguments, int line);
  Value RaiseException(const Arguments& arguments, int line);

  // The value, or undefined after an error, which is kept with its line.
  Value Checked(absl::StatusOr<Value> value, int line);
  Value Fail(int line, const absl::Status& why);
  bool ok() const { return status_.ok(); }

  Budget budget_;
  const int64_t now_unix_;
  std::shared_ptr<Scope> root_, scope_;
  int depth_ = 0;  // nested evaluations and blocks
  std::string out_;
  absl::Status status_;
  // A namespace can hold itself, and a scope the macros that keep it. They are emptied at the end, so
  // that nothing leaks.
  std::vector<std::shared_ptr<Value::Entries>> namespaces_;
  std::vector<std::shared_ptr<Scope>> kept_;
};

}  // namespace coppice::tokenizer::jinja
