// Where the values of a program's flags come from: the configuration file, the environment
// (COPPICE_ and the flag's name in capitals), the command line; the last of them counts. Used by
// base/program at start, before threads.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace coppice {

// Sets the flags of `names` that the section of the file gives. The error has a line for each
// fault, with file, line and column: wrong syntax, a wrong value, an unknown name. Checks only the
// syntax of other sections.
absl::Status SetFlagsFromFile(const std::string& path, const std::string& section,
                              const std::vector<std::string>& names);
absl::Status SetFlagsFromEnvironment(const std::vector<std::string>& names);
// Remembers that the command line has set a flag.
void NoteCommandLine(absl::string_view name);

// How an error calls a flag: "--max_queue", or by where its value comes from:
// "cluster.textproto:7:3: coordinator.max_queue", "COPPICE_MAX_QUEUE".
std::string FlagPlace(absl::string_view name);

// Every flag with its value as a section of a configuration file. A comment on each line says where
// the value comes from.
std::string PrintedConfig(const std::string& section, const std::vector<std::string>& names);

}  // namespace coppice
