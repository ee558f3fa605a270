#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"

namespace coppice::tokenizer::jinja {

const Value* Arguments::Get(size_t place, absl::string_view name) const {
  if (place < values_.size()) return &values_[place];
  for (const auto& named : named_) {
    if (named.first == name) return &named.second;
  }
  return nullptr;
}

absl::StatusOr<const std::string*> Arguments::Text(size_t place, absl::string_view name) const {
  const Value* value = Get(place, name);
  if (value == nullptr || value->is_none()) return static_cast<const std::string*>(nullptr);
  if (value->is_string()) return &value->string();
  return BadValue(
      absl::StrCat("argument ", place + 1, ": expected a text, got ", value->TypeName()));
}

absl::StatusOr<int64_t> Arguments::Integer(size_t place, absl::string_view name,
                                           int64_t fallback) const {
  const Value* value = Get(place, name);
  if (value == nullptr || value->is_none()) return fallback;
  if (value->is_integer()) return value->integer();
  return BadValue(
      absl::StrCat("argument ", place + 1, ": expected an integer, got ", value->TypeName()));
}

bool Arguments::Truth(size_t place, absl::string_view name, bool fallback) const {
  const Value* value = Get(place, name);
  return value == nullptr ? fallback : value->Truth();
}

absl::Status Arguments::Allow(size_t most, std::vector<absl::string_view> names) const {
  if (values_.size() > most)
    return BadValue(absl::StrCat("at most ", most, " arguments, got ", values_.size()));
  for (const auto& named : named_) {
    if (std::find(names.begin(), names.end(), named.first) == names.end())
      return BadValue(absl::StrCat("there is no argument '", named.first, "'"));
  }
  return absl::OkStatus();
}

}  // namespace coppice::tokenizer::jinja
