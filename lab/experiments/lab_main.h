// The program coppice-lab: reads an experiment from the flags, runs it on a pair, prints the
// report.
#pragma once

namespace coppice::lab {

// The exit status.
int LabMain(int argc, char** argv);

}  // namespace coppice::lab
