// coppice-golden FILE...: runs golden files (docs/algorithms.md 12) on the production decoders.
// A line for each case, the count last; exit 1 when anything failed, 2 when no file is named.
#include <iostream>

#include "tools/golden/golden_file.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: coppice-golden FILE...\n";
    return 2;
  }
  coppice::golden::Tally total;
  for (int i = 1; i < argc; ++i) {
    const coppice::golden::Tally tally = coppice::golden::RunGoldenFile(argv[i]);
    total.passed += tally.passed;
    total.failed += tally.failed;
    total.skipped += tally.skipped;
  }
  std::cout << total.passed << " passed, " << total.failed << " failed";
  if (total.skipped > 0) std::cout << ", " << total.skipped << " skipped";
  std::cout << "\n";
  return total.failed > 0 ? 1 : 0;
}
