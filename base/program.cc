#include "base/program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

ABSL_FLAG(std::string, log_level, "info", "trace, debug, info, warn, error or off");
ABSL_FLAG(std::string, log_format, "text", "text or json");

namespace coppice {
namespace {

bool IsBuiltIn(absl::string_view name) {
  return name == "help" || name == "version" || name == "flagfile";
}

bool Asks(const std::vector<std::string>& arguments, const std::string& name) {
  return std::find(arguments.begin(), arguments.end(), "--" + name) != arguments.end();
}

[[noreturn]] void PrintAndExit(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::exit(std::fflush(stdout) == 0 ? 0 : 1);
}

absl::Status BadFlag(absl::string_view flag, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", expected));
}

}  // namespace

absl::Status SetFlags(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!absl::StartsWith(argument, "--") || argument.size() == 2) {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument '", argument, "'"));
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (IsBuiltIn(name)) continue;
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (flag == nullptr && absl::StartsWith(name, "no") && equals == std::string::npos) {
      flag = absl::FindCommandLineFlag(name.substr(2));
      if (flag != nullptr && !flag->IsOfType<bool>()) flag = nullptr;
      value = "false";
    } else if (flag != nullptr && equals == std::string::npos) {
      const bool is_bool = flag->IsOfType<bool>();
      if (!is_bool && i + 1 == arguments.size()) return BadFlag(name, "expected a value");
      value = is_bool ? "true" : arguments[++i];
    }
    if (flag == nullptr) return absl::InvalidArgumentError(absl::StrCat("unknown flag --", name));
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      return BadFlag(name,
                     absl::StrCat("bad value '", value, "'", error.empty() ? "" : ": ", error));
    }
  }
  return absl::OkStatus();
}

void ParseProgramFlags(const std::string& program, const ProgramUsage& usage, int argc,
                       char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (Asks(arguments, "help")) PrintAndExit(HelpText(program, usage));
  if (Asks(arguments, "version")) PrintAndExit(absl::StrCat(program, " ", kVersion, "\n"));
  absl::Status status = SetFlags(arguments);
  if (status.ok()) {
    absl::ParseCommandLine(argc, argv);  // --flagfile
    status = InitLog(program, absl::GetFlag(FLAGS_log_level), absl::GetFlag(FLAGS_log_format));
  }
  if (status.ok()) return;
  FailProgram(program, status);
  std::exit(2);
}

int FailProgram(const std::string& program, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), std::string(status.message()).c_str());
  return 1;
}

}  // namespace coppice
