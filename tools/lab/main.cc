#include "tools/lab/lab_main.h"

int main(int argc, char** argv) { return coppice::lab::LabMain(argc, argv); }
