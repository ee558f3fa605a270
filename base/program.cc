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
#include "absl/strings/str_split.h"
#include "base/flag_sources.h"
#include "base/log.h"

ABSL_FLAG(std::string, log_level, "info", "trace, debug, info, warn, error or off");
ABSL_FLAG(std::string, log_format, "text", "text or json");
ABSL_FLAG(std::string, config, "",
          "configuration file of the cluster; the environment (COPPICE_ and a flag's name in "
          "capitals) and flags override it");
ABSL_FLAG(bool, check_config, false, "check file, environment and flags, and exit");
ABSL_FLAG(bool, print_config, false, "print every setting with where it comes from, and exit");

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

// The value that the arguments give to --config, else the environment.
std::string ConfigFile(const std::vector<std::string>& arguments) {
  const char* variable = std::getenv("COPPICE_CONFIG");
  std::string file = variable == nullptr ? "" : variable;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (absl::StartsWith(arguments[i], "--config=")) file = arguments[i].substr(9);
    if (arguments[i] == "--config" && i + 1 < arguments.size()) file = arguments[i + 1];
  }
  return file;
}

// From file, environment and command line, in this order.
absl::Status SetAllFlags(const ProgramUsage& usage, const std::vector<std::string>& arguments) {
  if (usage.section.empty()) return SetFlags(arguments);
  const std::vector<std::string> names = ConfigurableFlags(usage);
  const std::string file = ConfigFile(arguments);
  std::string faults;
  const auto note = [&faults](const absl::Status& status) {
    if (!status.ok()) absl::StrAppend(&faults, faults.empty() ? "" : "\n", status.message());
  };
  if (!file.empty()) note(SetFlagsFromFile(file, usage.section, names));
  note(SetFlagsFromEnvironment(names));
  note(SetFlags(arguments));
  return faults.empty() ? absl::OkStatus() : absl::InvalidArgumentError(faults);
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
    NoteCommandLine(flag->Name());
  }
  return absl::OkStatus();
}

void ParseProgramFlags(const std::string& program, const ProgramUsage& usage, int argc,
                       char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (Asks(arguments, "help")) PrintAndExit(HelpText(program, usage));
  if (Asks(arguments, "version")) PrintAndExit(absl::StrCat(program, " ", kVersion, "\n"));
  absl::Status status = SetAllFlags(usage, arguments);
  if (status.ok()) {
    absl::ParseCommandLine(argc, argv);  // --flagfile
    if (usage.section.empty() && !absl::GetFlag(FLAGS_config).empty())
      status = BadFlag("config", absl::StrCat(program, " reads no configuration file"));
  }
  if (status.ok() && absl::GetFlag(FLAGS_print_config))
    PrintAndExit(PrintedConfig(usage.section, ConfigurableFlags(usage)));
  if (status.ok()) {
    status = InitLog(program, absl::GetFlag(FLAGS_log_level), absl::GetFlag(FLAGS_log_format));
  }
  if (status.ok()) return;
  FailProgram(program, status);
  std::exit(2);
}

bool CheckedConfig(const std::string& program) {
  if (!absl::GetFlag(FLAGS_check_config)) return false;
  std::printf("%s: the configuration is valid\n", program.c_str());
  return true;
}

int FailProgram(const std::string& program, const absl::Status& status) {
  for (absl::string_view line : absl::StrSplit(status.message(), '\n'))
    std::fprintf(stderr, "%s: %s\n", program.c_str(), std::string(line).c_str());
  return 1;
}

}  // namespace coppice
