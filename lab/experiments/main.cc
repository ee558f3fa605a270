#include "lab/experiments/lab_main.h"

int main(int argc, char** argv) { return coppice::lab::LabMain(argc, argv); }
