// A value of a chat template, with the meaning that it has in Python and Jinja2. Strings, lists and
// dictionaries are shared and never change, so copies are cheap; only a namespace can be changed.
// Used by the renderer, its filters and its methods. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer::jinja {

struct Statement;  // syntax.h

class Value {
 public:
  using Items = std::vector<Value>;
  using Entries = std::vector<std::pair<std::string, Value>>;  // in order of insertion
  struct List;
  struct Dict;
  struct Loop;
  struct Method;

  // Without a value. what: why there is none, for error messages ("'x' is undefined").
  static Value Undefined(std::string what);
  static Value String(std::string text);
  static Value MakeList(Items items, bool tuple = false);
  static Value MakeDict(Entries entries);
  static Value Namespace(std::shared_ptr<Entries> entries);
  static Value Macro(const Statement* macro);
  static Value Function(const char* name);  // a function of the renderer
  static Value MakeLoop(std::shared_ptr<Loop> loop);
  static Value MakeMethod(Value self, std::string name);
  static Value FromJson(const nlohmann::ordered_json& json);

  Value() : data_(Missing{}) {}
  explicit Value(std::nullptr_t) : data_(nullptr) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}

  bool is_undefined() const { return std::holds_alternative<Missing>(data_); }
  bool is_none() const { return std::holds_alternative<std::nullptr_t>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_integer() const { return is_bool() || is_int(); }  // as in Python, true is 1
  bool is_string() const { return std::holds_alternative<Text>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const List>>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_namespace() const { return std::holds_alternative<std::shared_ptr<Entries>>(data_); }
  bool is_callable() const;

  // Each needs the kind above.
  int64_t integer() const { return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double number() const { return is_float() ? std::get<double>(data_) : integer(); }
  const std::string& string() const { return *std::get<Text>(data_); }
  const Items& items() const;
  bool is_tuple() const;
  const Entries& entries() const;
  Entries& mutable_entries() const { return *std::get<std::shared_ptr<Entries>>(data_); }

  // nullptr if it is of another kind.
  const Statement* macro() const;
  const char* function() const;
  const Loop* loop() const;
  const Method* method() const;

  // Why it is undefined; "" if it is defined.
  std::string why_undefined() const;
  // Levels of lists and dictionaries inside it.
  int depth() const;
  // The entry of a dictionary or namespace; nullptr if there is none.
  const Value* Find(absl::string_view key) const;

  bool Truth() const;
  std::string TypeName() const;  // as error messages call it
  friend bool operator==(const Value& a, const Value& b);
  friend bool operator!=(const Value& a, const Value& b) { return !(a == b); }

 private:
  struct Missing {
    std::shared_ptr<const std::string> what;
  };
  struct Function_ {
    const char* name;
  };
  using Text = std::shared_ptr<const std::string>;
  std::variant<Missing, std::nullptr_t, bool, int64_t, double, Text, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Entries>, const Statement*, Function_,
               std::shared_ptr<Loop>, std::shared_ptr<const Method>>
      data_;
};

struct Value::List {
  Items items;
  bool tuple = false;
  int depth = 1;
};

struct Value::Dict {
  Entries entries;
  int depth = 1;
};

// The variable `loop` of a for.
struct Value::Loop {
  Items items;
  size_t index = 0;  // index of the current item
  int depth0 = 0;    // number of enclosing loops
  int depth = 1;
};

struct Value::Method {
  Value self;
  std::string name;
};

// str(value) and repr(value) of Python. False if the value cannot be printed (a macro, a loop).
bool AppendStr(const Value& value, std::string* out);
bool AppendRepr(const Value& value, std::string* out);

}  // namespace coppice::tokenizer::jinja
