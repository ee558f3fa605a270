// JSON as text: taken apart into the texts of its parts, and put together again. Takes linear time
// and keeps the order of members, unlike nlohmann's types. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

// The members of an object, with the texts of their values, in order; none of another value. `text`
// is valid JSON and must outlive the result.
std::vector<std::pair<std::string, absl::string_view>> MemberTexts(absl::string_view text);
// The text of the value of this member, the last one if there are several; "": there is none.
absl::string_view MemberText(absl::string_view object, absl::string_view name);
// The texts of the entries of a list; none of another value.
std::vector<absl::string_view> EntryTexts(absl::string_view text);

// The same value in one line, without white space between its parts. `text` is valid JSON.
std::string CompactText(absl::string_view text);
// A string as JSON. Invalid parts of UTF-8 become U+FFFD.
std::string QuotedText(absl::string_view text);
void AppendQuoted(absl::string_view text, std::string* out);

// Writes an object.
class ObjectText {
 public:
  ObjectText& Add(absl::string_view name, const nlohmann::ordered_json& value);
  // text: of the value.
  ObjectText& AddText(absl::string_view name, absl::string_view text);
  // members: the text of an object without its braces.
  ObjectText& AddMembers(absl::string_view members);
  bool empty() const { return members_.empty(); }
  const std::string& members() const { return members_; }
  std::string text() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

// Writes a list.
class ListText {
 public:
  void Add(absl::string_view text);
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  std::string text() const { return "[" + entries_ + "]"; }

 private:
  std::string entries_;
  size_t size_ = 0;
};

}  // namespace coppice::coordinator
