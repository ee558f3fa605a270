// Which schemas of a document stand for others: by "$ref", "anyOf" and the like, which describe the
// same value as the schema that they lead to. Used by the reader of schemas. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace coppice::grammar {

class JsonReferences {
 public:
  // The schema of rule `from` stands for that of rule `to`. pointer: where it says so. reference:
  // by a "$ref".
  void Add(int from, int to, std::string pointer, bool reference);
  // InvalidArgument names a "$ref" that leads back to itself without a value between.
  absl::Status CheckNoCircle() const;

 private:
  struct Link {
    int to;
    std::string pointer;
    bool reference;
  };
  std::vector<std::vector<Link>> links_;  // [rule]
};

}  // namespace coppice::grammar
