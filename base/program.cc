#include "base/program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/flag_sources.h"
#include "base/log.h"
#include "base/program_help.h"

namespace coppice {
namespace {

constexpr int kBadFlags = 2;  // exit status

bool Asks(const std::vector<std::string>& arguments, const std::string& name) {
  return std::find(arguments.begin(), arguments.end(), "--" + name) != arguments.end();
}

[[noreturn]] void PrintAndExit(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::exit(std::fflush(stdout) == 0 ? 0 : 1);
}

void ExitIfBad(const std::string& program, const absl::Status& status) {
  if (status.ok()) return;
  FailProgram(program, status);
  std::exit(kBadFlags);
}

}  // namespace

void ParseProgramFlags(FlagTable table, int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  Flags flags(std::move(table));
  const std::string& program = flags.table().program;
  if (Asks(arguments, "help")) PrintAndExit(HelpText(flags));
  if (Asks(arguments, "version")) PrintAndExit(absl::StrCat(program, " ", kVersion, "\n"));
  ExitIfBad(program, SetFlags(arguments, &flags));
  if (flags.common().print_config) PrintAndExit(flags.PrintedConfig());
  ExitIfBad(program, flags.Check());
  if (flags.common().check_config)
    PrintAndExit(absl::StrCat(program, ": the configuration is valid\n"));
  ExitIfBad(program, InitLog(program, flags.common().log_level, flags.common().log_format));
}

int FailProgram(const std::string& program, const absl::Status& status) {
  for (absl::string_view line : absl::StrSplit(status.message(), '\n'))
    std::fprintf(stderr, "%s: %s\n", program.c_str(), std::string(line).c_str());
  return 1;
}

}  // namespace coppice
