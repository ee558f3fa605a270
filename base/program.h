// What every program's start-up shares: flags with usage, and "program: reason" as the one line of
// a failure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace coppice {

inline constexpr char kVersion[] = "0.1.0";

// Sets the flags. InvalidArgument names an unknown flag, a bad value or a stray argument; --help
// and --version are left to ParseProgramFlags.
absl::Status SetFlags(const std::vector<std::string>& arguments);

// Parses flags (--help, --version, --log_level, --log_format included), refuses positional
// arguments, starts the log. Exits by itself for --help and --version and, with status 2, for a bad
// flag, after one line that names it.
void ParseProgramFlags(const std::string& program, const std::string& usage, int argc, char** argv);

// Prints "program: message" on stderr; the exit status of a failed start.
int FailProgram(const std::string& program, const absl::Status& status);

}  // namespace coppice
