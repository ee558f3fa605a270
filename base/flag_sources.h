// Where the values of a program's flags come from: the configuration file, the environment
// (COPPICE_ and the flag's name in capitals), the command line; the last of them counts. Used by
// base/program at start, before threads.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/flag_table.h"

namespace coppice {

// Sets the flags that the program's table in the file gives. The error has a line for each fault,
// with file, line and column: a fault of the syntax, of a value, or a name that no flag has. In the
// tables of other programs only the syntax is checked.
absl::Status SetFlagsFromFile(const std::string& path, Flags* flags);
absl::Status SetFlagsFromEnvironment(Flags* flags);
// InvalidArgument names an unknown flag, a bad value or a stray argument. Skips --help and
// --version. Reads the files of --flagfile=FILE: a flag in each line, # begins a comment.
absl::Status SetFlagsFromCommandLine(const std::vector<std::string>& arguments, Flags* flags);

// For a program with a configuration file: all three, in this order. Otherwise the command line
// alone. Reports every fault.
absl::Status SetFlags(const std::vector<std::string>& arguments, Flags* flags);

}  // namespace coppice
