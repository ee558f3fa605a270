// SIGINT and SIGTERM as a flag: install once in main, look at it in the loop (a blocking poll
// returns on the signal).
#pragma once

namespace coppice {

void InstallStopSignals();
bool StopRequested();

}  // namespace coppice
