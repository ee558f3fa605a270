// The program coppice-lab: flags to an experiment, the experiment on a pair, the report.
#pragma once

namespace coppice::lab {

// The exit status.
int LabMain(int argc, char** argv);

}  // namespace coppice::lab
