// What every program's start-up shares: flags with usage, and "program: reason" as the one line of
// a failure.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace coppice {

inline constexpr char kVersion[] = "0.1.0";

// Parses flags (--help, --version, --log_level, --log_format included), refuses positional
// arguments, starts the log. Exits by itself for --help and --version and, with status 2, for a bad
// flag.
void ParseProgramFlags(const std::string& program, const std::string& usage, int argc, char** argv);

// Prints "program: message" on stderr; the exit status of a failed start.
int FailProgram(const std::string& program, const absl::Status& status);

}  // namespace coppice
