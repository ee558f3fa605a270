// The program coppice-perplexity.
#pragma once

namespace coppice::perplexity {

// Returns the exit status: 1 if a limit is exceeded, 2 if a flag or a file is wrong.
int PerplexityMain(int argc, char** argv);

}  // namespace coppice::perplexity
