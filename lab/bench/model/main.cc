#include "lab/bench/model/bench_main.h"

int main(int argc, char** argv) { return coppice::bench::BenchMain(argc, argv); }
