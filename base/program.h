// Start-up of every program: flags with usage, and the line "program: reason" for a failure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/program_help.h"

namespace coppice {

inline constexpr char kVersion[] = "0.2.0";

// Sets the flags. InvalidArgument names an unknown flag, a bad value or a stray argument. Skips
// --help, --version and --flagfile.
absl::Status SetFlags(const std::vector<std::string>& arguments);

// Parses the flags, with --help, --version, --log_level and --log_format. Refuses positional
// arguments and starts the log. --help and --version print to stdout and exit with status 0. A bad
// flag exits with status 2 after one line that names it. If usage has a section, the file of
// --config and the environment set flags too (base/flag_sources), every fault is reported, and
// --print_config prints the result and exits with status 0.
void ParseProgramFlags(const std::string& program, const ProgramUsage& usage, int argc,
                       char** argv);

// Whether the program shall only check its configuration (--check_config). If so, it prints that
// this is valid; the caller then ends with status 0. Call it when all flags are known to be right.
bool CheckedConfig(const std::string& program);

// Prints "program: " and each line of the message on stderr. Returns the exit status of a failed
// start.
int FailProgram(const std::string& program, const absl::Status& status);

}  // namespace coppice
