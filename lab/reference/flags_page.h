// Writes docs/flags.md from the programs' tables of flags. The program coppice-reference prints it;
// tests/lab/reference fails when the page in the tree is stale. Pure.
#pragma once

#include <string>

namespace coppice::reference {

std::string FlagsPage();

}  // namespace coppice::reference
