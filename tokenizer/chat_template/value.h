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

// What can be iterated over and is no list, tuple, text or dictionary.
enum class IterableKind {
  kRange,     // range()
  kView,      // keys(), values(), items() of a dictionary
  kIterator,  // what filters such as map make: true, without a length, can be used once
};

class Value {
 public:
  using Items = std::vector<Value>;
  using Entries = std::vector<std::pair<Value, Value>>;  // in order of insertion
  struct List;
  struct Dict;
  struct Iterable;
  struct Closure;
  struct Loop;
  struct Method;

  // Without a value. what: why there is none, for error messages ("'x' is undefined").
  static Value Undefined(std::string what);
  static Value String(std::string text);
  // A text that is marked as safe: what is added to it is escaped for HTML.
  static Value Markup(std::string text);
  static Value MakeList(Items items, bool tuple = false);
  // An item of groupby: a tuple whose parts are also called grouper and list.
  static Value MakeGroup(Value grouper, Value list);
  static Value MakeDict(Entries entries);
  // repr: the text before the items, as Python prints it; all of it for a range.
  static Value MakeIterable(IterableKind kind, Items items, std::string repr);
  static Value Namespace(std::shared_ptr<Entries> entries);
  // scope: of the renderer, where the macro is defined.
  static Value Macro(const Statement* macro, std::shared_ptr<void> scope);
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
  bool is_markup() const { return markup_; }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const List>>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_iterable() const {  // Iterable
    return std::holds_alternative<std::shared_ptr<Iterable>>(data_);
  }
  bool is_iterator() const;
  bool is_range() const;
  bool is_namespace() const { return std::holds_alternative<std::shared_ptr<Entries>>(data_); }
  bool is_callable() const;

  // Each needs the kind above.
  int64_t integer() const { return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double number() const { return is_float() ? std::get<double>(data_) : integer(); }
  const std::string& string() const { return *std::get<Text>(data_); }
  const Items& items() const;  // of a list, a tuple or an Iterable
  bool is_tuple() const;
  bool is_group() const;
  const Entries& entries() const;
  Entries& mutable_entries() const { return *std::get<std::shared_ptr<Entries>>(data_); }

  // nullptr if it is of another kind.
  Iterable* iterable() const;
  const Closure* macro() const;
  const char* function() const;
  Loop* loop() const;
  const Method* method() const;

  // Why it is undefined; "" if it is defined.
  std::string why_undefined() const;
  // Levels of lists and dictionaries inside it.
  int depth() const;
  // The entry of a dictionary or namespace; nullptr if there is none.
  const Value* Find(absl::string_view key) const;
  const Value* Find(const Value& key) const;
  // Replaces the entry with the key, or adds it.
  static void SetEntry(Entries* entries, Value key, Value value);
  bool CanBeKey() const { return !is_list() && !is_dict(); }

  bool Truth() const;
  // Whether it is the same object: lists and dictionaries are only what they were made as.
  bool IsSameAs(const Value& other) const;
  std::string TypeName() const;  // as error messages call it
  // Equality of what can be a key. Others are only equal to themselves; see Equals in operators.h.
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
               std::shared_ptr<const Dict>, std::shared_ptr<Iterable>, std::shared_ptr<Entries>,
               std::shared_ptr<const Closure>, Function_, std::shared_ptr<Loop>,
               std::shared_ptr<const Method>>
      data_;
  bool markup_ = false;
};

struct Value::List {
  Items items;
  bool tuple = false;
  bool group = false;
  int depth = 1;
};

struct Value::Iterable {
  IterableKind kind = IterableKind::kIterator;
  Items items;
  size_t next = 0;  // of an iterator: the items before it are used up
  std::string repr;
  int depth = 1;
};

struct Value::Closure {
  const Statement* macro = nullptr;
  std::shared_ptr<void> scope;
};

struct Value::Dict {
  Entries entries;
  int depth = 1;
};

// The variable `loop` of a for.
struct Value::Loop {
  Items items;
  size_t index = 0;  // index of the current item
  int depth0 = 0;    // calls of a recursive loop around this one
  int depth = 1;
  Items last_changed;                    // the arguments of the last loop.changed()
  bool changed = false;                  // whether it was called
  const Statement* recursive = nullptr;  // the for, if it is recursive
  std::shared_ptr<void> scope;           // the scope around it
};

struct Value::Method {
  Value self;
  std::string name;
};

// str(value) and repr(value) of Python. False if the value cannot be printed (a macro, a loop).
bool AppendStr(const Value& value, std::string* out);
bool AppendRepr(const Value& value, std::string* out);

}  // namespace coppice::tokenizer::jinja
