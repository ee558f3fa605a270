// The filters, tests, methods and functions that a chat template may use, by name. The renderer calls
// these. Filters are in filters.cc and *_filters.cc, tests in value_tests.cc,
// methods in methods.cc and text_methods.cc. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/value.h"

namespace coppice::tokenizer::jinja {

// The arguments of a call, by place and by name.
class Arguments {
 public:
  using Named = std::vector<std::pair<std::string, Value>>;
  Arguments(Value::Items values, Named named)
      : values_(std::move(values)), named_(std::move(named)) {}

  void Add(std::string name, Value value) {
    named_.emplace_back(std::move(name), std::move(value));
  }
  const Value::Items& values() const { return values_; }
  const Named& named() const { return named_; }
  // The argument at the place, or with the name; nullptr if it is not given.
  const Value* Get(size_t place, absl::string_view name) const;
  // Text, an integer or a truth value, or the default if it is not given or none. An error names
  // the argument.
  absl::StatusOr<const std::string*> Text(size_t place, absl::string_view name) const;
  absl::StatusOr<int64_t> Integer(size_t place, absl::string_view name, int64_t fallback) const;
  bool Truth(size_t place, absl::string_view name, bool fallback) const;
  // Allows at most this many arguments by place, and by name only these.
  absl::Status Allow(size_t most, std::vector<absl::string_view> names = {}) const;

 private:
  Value::Items values_;
  Named named_;
};

using Result = absl::StatusOr<Value>;

// The functions of every template.
inline constexpr const char* kFunctions[] = {"dict", "namespace", "raise_exception", "range",
                                             "strftime_now"};

bool IsFilter(absl::string_view name);
bool IsTest(absl::string_view name);
bool IsMethod(absl::string_view name);  // a method of strings, lists, dictionaries or loops
// Those of Jinja2 and Python that are not there.
bool IsUnservedFilter(absl::string_view name);
bool IsUnservedMethod(absl::string_view name);

Result ApplyFilter(absl::string_view name, const Value& input, const Arguments& arguments,
                   Budget* budget);
absl::StatusOr<bool> ApplyTest(absl::string_view name, const Value& input,
                               const Arguments& arguments, Budget* budget);
// A method that changes its value, which the sandbox does not allow.
bool IsMutator(const Value& self, absl::string_view name);
// Whether values of this kind have the method.
bool HasMethod(const Value& self, absl::string_view name);
Result CallMethod(const Value& self, absl::string_view name, const Arguments& arguments,
                  Budget* budget);

// The entry or item that the path (a.b.0, or a number) means in the value; undefined, or the
// fallback, if there is none. For filters that take an attribute.
Result AttributePath(const Value& value, const Value& path, Budget* budget,
                     const Value* fallback = nullptr);

// The methods of texts.
bool IsTextMethod(absl::string_view name);
Result CallTextMethod(const std::string& text, absl::string_view name, const Arguments& arguments,
                      Budget* budget);

// json.dumps(value, ensure_ascii=False) with the options of Transformers' tojson.
Result ToJson(const Value& value, const Arguments& arguments, Budget* budget);

}  // namespace coppice::tokenizer::jinja
