// coppice-worker: one tensor-parallel rank of the target model.
#include "worker/worker_main.h"

int main(int argc, char** argv) { return coppice::worker::WorkerMain(argc, argv); }
