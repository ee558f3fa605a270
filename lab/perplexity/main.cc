#include "lab/perplexity/perplexity_main.h"

int main(int argc, char** argv) { return coppice::perplexity::PerplexityMain(argc, argv); }
