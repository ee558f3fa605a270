// Operators, items and slices of template values, as Python and Jinja2 define them, and the budget
// of a rendering. Called by the renderer and the filters. Pure, except that the budget is used up.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/chat_template/syntax.h"
#include "tokenizer/chat_template/value.h"

namespace coppice::tokenizer::jinja {

// The budget of one rendering. A template or a request that needs more fails instead of occupying
// the server. A step is an evaluated node, an item of a list that is made, or 64 bytes of text that
// are read or written.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes) : steps_(steps), bytes_(bytes) {}
  // Takes steps. The error says that there are too few.
  absl::Status Take(int64_t steps);
  // Takes the steps of a text of this many bytes, which must not exceed the limit of a text.
  absl::Status TakeText(int64_t bytes);
  int64_t max_text() const { return bytes_; }

 private:
  int64_t steps_;
  const int64_t bytes_;
};

// Entries of a dictionary that are searched in a step.
inline constexpr int64_t kEntriesPerStep = 16;

// Lists and dictionaries may be nested this deep.
inline constexpr int kMaxValueDepth = 64;

absl::StatusOr<Value> Binary(Operation operation, const Value& a, const Value& b, Budget* budget);
absl::StatusOr<bool> Compare(Operation operation, const Value& a, const Value& b, Budget* budget);
absl::StatusOr<bool> Equals(const Value& a, const Value& b, Budget* budget);
// The index of the first item that equals this one; the number of items if there is none.
absl::StatusOr<size_t> FindItem(const Value::Items& items, const Value& item, Budget* budget);
absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget* budget);

// a[index]: undefined if there is no such item.
absl::StatusOr<Value> ItemOf(const Value& value, const Value& index, Budget* budget);
// a.name: an entry, or a method.
absl::StatusOr<Value> AttributeOf(const Value& value, const std::string& name, Budget* budget);
// nullptr for bounds that are absent.
absl::StatusOr<Value> SliceOf(const Value& value, const Value* start, const Value* stop,
                              const Value* step, Budget* budget);
// The values that a for iterates over: items, characters, keys. An error for values that cannot be
// iterated.
absl::StatusOr<Value::Items> ItemsOf(const Value& value, Budget* budget);

// The value as text that is safe in HTML: escaped, unless it is marked as safe.
absl::StatusOr<Value> Escaped(const Value& value, Budget* budget);

// str(value) with its cost.
absl::StatusOr<std::string> TextOf(const Value& value, Budget* budget);
absl::StatusOr<Value> CheckedList(Value::Items items, bool tuple, Budget* budget);
absl::StatusOr<Value> CheckedText(std::string text, Budget* budget);

absl::Status BadValue(absl::string_view why);

}  // namespace coppice::tokenizer::jinja
