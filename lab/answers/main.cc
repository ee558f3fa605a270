#include "lab/answers/answers_main.h"

int main(int argc, char** argv) { return coppice::answers::AnswersMain(argc, argv); }
