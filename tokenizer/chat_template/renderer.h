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
  using Frame = absl::flat_hash_map<std::string, Value>;

  Flow RunBlock(const Block& block);
  Flow Run(const Statement& statement);
  Flow RunOutput(const Statement& statement);
  Flow RunIf(const Statement& statement);
  Flow RunFor(const Statement& statement);
  Flow RunLoop(const Statement& statement, Value::Items items);
  Flow RunSet(const Statement& statement);
  Flow RunSetBlock(const Statement& statement);
  // The items of a for that pass its condition.
  bool LoopItems(const Statement& statement, Value::Items* items);
  bool Assign(const Statement& statement, const Value& value);
  void Set(const std::string& name, Value value) { frames_.back()[name] = std::move(value); }
  bool Print(absl::string_view text, int line);

  Value Evaluate(const Expression& expression);
  Value EvaluateNode(const Expression& expression);
  Value EvaluateName(const Expression& expression);
  Value EvaluateList(const Expression& expression);
  Value EvaluateDict(const Expression& expression);
  Value EvaluateSlice(const Expression& expression);
  Value EvaluateCall(const Expression& expression);
  Value EvaluateTest(const Expression& expression);
  Value EvaluateConcat(const Expression& expression);
  Value EvaluateCompare(const Expression& expression);
  Value EvaluateLogical(const Expression& expression);
  Value EvaluateConditional(const Expression& expression);
  // The arguments of a call; parts[0] is what is called.
  Arguments EvaluateArguments(const Expression& call);
  Value CallMacro(const Statement& macro, const Arguments& arguments, int line);
  Value CallFunction(absl::string_view name, const Arguments& arguments, int line);
  Value MakeNamespace(const Arguments& arguments, int line);
  Value MakeRange(const Arguments& arguments, int line);
  Value StrftimeNow(const Arguments& arguments, int line);
  Value RaiseException(const Arguments& arguments);

  // The value, or undefined after an error, which is kept with its line.
  Value Checked(absl::StatusOr<Value> value, int line);
  Value Fail(int line, const absl::Status& why);
  bool ok() const { return status_.ok(); }

  Budget budget_;
  const int64_t now_unix_;
  // The scopes, inner ones last. A macro sees those from base_ on, and the outermost one.
  std::vector<Frame> frames_;
  size_t base_ = 0;
  int depth_ = 0;  // nested evaluations and blocks
  int loops_ = 0;
  std::string out_;
  absl::Status status_;
  // A namespace can hold itself. They are emptied at the end, so that nothing leaks.
  std::vector<std::shared_ptr<Value::Entries>> namespaces_;
};

}  // namespace coppice::tokenizer::jinja
