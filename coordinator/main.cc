// coppice-coordinator: the HTTP API, routing and node registry of a cluster.
#include "coordinator/coordinator_main.h"

int main(int argc, char** argv) { return coppice::coordinator::CoordinatorMain(argc, argv); }
