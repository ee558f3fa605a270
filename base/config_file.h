// Reads the configuration file of a cluster (docs/api.md 7): TOML with a table for each program.
// Knows no flags. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice {

struct ConfigField {
  enum Kind { kSection, kText, kInteger, kNumber, kBool, kOther };
  Kind kind = kOther;   // kSection: the head of a table, without name and value
  std::string section;  // "coordinator"; "" for a field outside of all tables
  std::string name;     // "max_queue"
  std::string path;     // "coordinator.limits.max_queue"
  std::string value;    // the value as the text of a flag
  int line = 1, column = 1;
};

struct ConfigError {
  int line = 1, column = 1;
  std::string what;
};

// Fields stand in a table, or in a table inside it that only groups them ([worker.limits]). They
// are in the order of the file. A syntax error ends the reading; other faults are reported
// together. Errors are appended.
std::vector<ConfigField> ParseConfig(absl::string_view text, std::vector<ConfigError>* errors);

}  // namespace coppice
