// The whole program: dataset, warm-up, run, report. Called by main and by tests.
#pragma once

#include "loadgen/options.h"

namespace coppice::loadgen {

// Prints the table on stdout and progress on stderr. Exit status: 0 good, 1 server not reachable or
// more than max_failed percent failed, 2 bad dataset, 3 the client itself was too slow.
int RunLoadgen(const LoadgenOptions& options, const std::string& command_line);

}  // namespace coppice::loadgen
