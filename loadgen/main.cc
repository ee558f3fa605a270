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
  coppice::loadgen::LoadgenFlags flags;
  coppice::ParseProgramFlags(coppice::loadgen::LoadgenFlagTable(&flags),
                             static_cast<int>(normalized.size()), normalized.data());
  return coppice::loadgen::RunLoadgen(flags.options, coppice::loadgen::CommandLineText(given));
}
