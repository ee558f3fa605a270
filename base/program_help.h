// The text of --help: what a program does, and its flags in groups with their defaults. Called by
// base/program. Reads the table of flags; otherwise pure.
#pragma once

#include <string>
#include <vector>

namespace coppice {

// A heading of --help and the flags under it, in this order.
struct FlagGroup {
  std::string title;
  std::vector<std::string> flags;  // as declared, without dashes
};

struct ProgramUsage {
  std::string text;  // what the program does: sentences, examples
  // Every flag of the program's own sources. Flags of base/ (--log_level, ...) are added.
  std::vector<FlagGroup> groups;
  // Writes flags with dashes instead of underscores, for programs whose pages do so.
  bool dashes = false;
  // The section of a configuration file that sets these flags; "" = the program reads no such file.
  std::string section;
};

// The flags that a configuration file may set: those of the groups, and --log_level, --log_format.
std::vector<std::string> ConfigurableFlags(const ProgramUsage& usage);

// Flags that no group names come last, under "Other flags". A group must not name an unknown flag.
std::string HelpText(const std::string& program, const ProgramUsage& usage);

}  // namespace coppice
