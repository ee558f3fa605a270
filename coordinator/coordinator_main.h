// coppice-coordinator: flags, tokenizer, launch under one mpirun or alone, serve until a signal.
#pragma once

namespace coppice::coordinator {

// The exit status.
int CoordinatorMain(int argc, char** argv);

}  // namespace coppice::coordinator
