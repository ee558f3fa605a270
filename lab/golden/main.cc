// coppice-golden FILE|DIRECTORY...: runs golden files (tests/golden/README.md) on the production
// decoders; of a directory, all of them. Prints a line for each case, and last the count. Exit
// status 1 when a case failed, 2 when no file, or a flag, is given.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "lab/golden/golden_file.h"

int main(int argc, char** argv) {
  constexpr char kUsage[] =
      "usage: coppice-golden FILE|DIRECTORY...\n"
      "Runs golden files on the production decoders; of a directory, all of them.\n";
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::cout << kUsage;
    return 0;
  }
  const bool has_flags = std::any_of(argv + 1, argv + argc, [](const char* argument) {
    return std::string_view(argument).starts_with("-");
  });
  if (argc < 2 || has_flags) {
    std::cerr << kUsage;
    return 2;
  }
  coppice::golden::Tally total;
  for (int i = 1; i < argc; ++i) {
    const coppice::golden::Tally tally = std::filesystem::is_directory(argv[i])
                                             ? coppice::golden::RunGoldenDirectory(argv[i])
                                             : coppice::golden::RunGoldenFile(argv[i]);
    total.passed += tally.passed;
    total.failed += tally.failed;
  }
  std::cout << total.passed << " passed, " << total.failed << " failed\n";
  return total.failed > 0 ? 1 : 0;
}
