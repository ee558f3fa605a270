// The fields of a request that are ignored and named to the client: unknown ones, and those that
// are not served but change nothing that a client may rely on (docs/api.md 2). Value type.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

class IgnoredFields {
 public:
  IgnoredFields() = default;
  // refuse: such fields are errors instead (--unknown_fields=refuse).
  explicit IgnoredFields(bool refuse) : refuse_(refuse) {}

  // False: it must be refused. The same field of several list entries is named once:
  // "messages[].annotations". Only the first 32 names are kept, each up to 64 characters.
  bool Add(absl::string_view path);

  bool refuse() const { return refuse_; }
  const std::vector<std::string>& names() const { return names_; }
  bool empty() const { return names_.empty(); }
  // The names with commas. Characters that are not safe in a header or a log line are '?'.
  std::string Text() const;

 private:
  bool refuse_ = false;
  std::vector<std::string> names_;
};

}  // namespace coppice::coordinator
