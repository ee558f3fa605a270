// Start-up of every program: flags, and the line "program: reason" for a failure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/flag_table.h"

namespace coppice {

inline constexpr char kVersion[] = "0.2.0";

// Sets the variables of the table's flags from configuration file, environment and command line
// (base/flag_sources), checks them and starts the log. --help, --version, --print_config and
// --check_config print to stdout and exit with status 0. All faults of flags are reported, one per
// line; the exit status is then 2.
void ParseProgramFlags(FlagTable table, int argc, char** argv);

// Prints "program: " and each line of the message on stderr. Returns the exit status of a failed
// start.
int FailProgram(const std::string& program, const absl::Status& status);

}  // namespace coppice
