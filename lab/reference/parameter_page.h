// Writes docs/parameters.md from the tables of parameters and methods. The program
// coppice-reference prints it; tests/lab/reference fails when the page in the tree is stale. Pure.
#pragma once

#include <string>

namespace coppice::reference {

std::string ParameterPage();

}  // namespace coppice::reference
