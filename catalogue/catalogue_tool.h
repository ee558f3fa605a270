// The program coppice-catalogue: compile, show and check.
#pragma once

namespace coppice::catalogue {

// Returns the exit status: 0, 1 if the command failed, 2 if it was called wrongly.
int CatalogueMain(int argc, char** argv);

}  // namespace coppice::catalogue
