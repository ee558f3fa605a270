#include <cstdio>
#include <string>
#include <vector>

#include "base/program.h"
#include "loadgen/arguments.h"
#include "loadgen/loadgen_main.h"

int main(int argc, char** argv) {
  const std::vector<std::string> given(argv + 1, argv + argc);
  std::vector<std::string> arguments = coppice::loadgen::NormalizeFlags(given);
  arguments.insert(arguments.begin(), argv[0]);
  std::vector<char*> normalized;
  for (std::string& argument : arguments) normalized.push_back(argument.data());
  coppice::ParseProgramFlags("coppice-loadgen", coppice::loadgen::FlagUsage(),
                             static_cast<int>(normalized.size()), normalized.data());
  const auto options = coppice::loadgen::ReadOptions();
  if (!options.ok()) {
    std::fprintf(stderr, "coppice-loadgen: %s\n", std::string(options.status().message()).c_str());
    return 2;
  }
  return coppice::loadgen::RunLoadgen(*options, coppice::loadgen::CommandLineText(given));
}
