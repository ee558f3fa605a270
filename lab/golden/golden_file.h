// Runs golden files and prints a line for each case. Called by main.cc for every argument.
#pragma once

#include <string>

#include "lab/golden/golden_case.h"

namespace coppice::golden {

struct Tally {
  int passed = 0;
  int failed = 0;
};

// A file that cannot be read, or whose algorithm is unknown, counts as one failure; prints why.
Tally RunGoldenFile(const std::string& file);

// Runs every *.json of the directory, by name. An algorithm that no file there tests counts as one
// failure.
Tally RunGoldenDirectory(const std::string& directory);

// Prints the line of one case and counts it. `error`: why it could not be run; "" = see `check`.
void Count(const std::string& file, const std::string& name, std::string error,
           const CaseCheck& check, Tally* tally);

}  // namespace coppice::golden
