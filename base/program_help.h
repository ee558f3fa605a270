// The texts that a table of flags gives: that of --help, and a chapter of docs/flags.md. Pure.
#pragma once

#include <string>

#include "base/flag_table.h"

namespace coppice {

// What the program does, and its flags in groups with their defaults.
std::string HelpText(const Flags& flags);

// A chapter in Markdown: a list for each group, an entry for each row. Names are spelled as --help
// spells them.
std::string FlagsChapter(const Flags& flags);

}  // namespace coppice
