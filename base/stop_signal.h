// SIGINT and SIGTERM as a flag. Install once in main and test it in the loop; the signal interrupts
// a blocking poll.
#pragma once

namespace coppice {

void InstallStopSignals();
bool StopRequested();

}  // namespace coppice
