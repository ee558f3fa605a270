// Reads the configuration file of a cluster (docs/api.md 7): sections of fields in protobuf's text
// format, `worker { model: "/models/target" threads: 2 }`. Knows no flags. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice {

struct ConfigField {
  std::string section;  // "coordinator"
  std::string name;     // "max_queue"
  std::string path;     // "coordinator.limits.max_queue"
  std::string value;    // without quotes and escapes
  bool quoted = false;
  int line = 1, column = 1;
};

struct ConfigError {
  int line = 1, column = 1;
  std::string what;
};

// Fields may stand in a section, or in a block of a section that only groups them (`limits { ... }`).
// Goes on after a faulty field; a broken nesting ends it. # begins a comment. Errors are appended.
std::vector<ConfigField> ParseConfig(absl::string_view text, std::vector<ConfigError>* errors);

// The name that is most like `name`, "" if none is alike.
std::string NearestName(absl::string_view name, const std::vector<std::string>& known);

}  // namespace coppice
