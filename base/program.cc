#include "base/program.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "base/log.h"

ABSL_FLAG(std::string, log_level, "info", "trace, debug, info, warn, error or off");
ABSL_FLAG(std::string, log_format, "text", "text or json");

namespace coppice {

void ParseProgramFlags(const std::string& program, const std::string& usage, int argc,
                       char** argv) {
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.version_string = [program] { return program + " " + kVersion + "\n"; };
  // --help shows the program's own flags, those of every Coppice source file.
  const auto ours = [](absl::string_view file) { return !absl::StrContains(file, "absl/"); };
  config.contains_help_flags = ours;
  config.contains_helpshort_flags = ours;
  absl::SetFlagsUsageConfig(config);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  std::string error;
  if (rest.size() > 1) error = std::string("unexpected argument '") + rest[1] + "'";
  if (error.empty()) {
    const absl::Status log =
        InitLog(program, absl::GetFlag(FLAGS_log_level), absl::GetFlag(FLAGS_log_format));
    if (!log.ok()) error = std::string(log.message());
  }
  if (error.empty()) return;
  std::fprintf(stderr, "%s: %s\n", program.c_str(), error.c_str());
  std::exit(2);
}

int FailProgram(const std::string& program, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), std::string(status.message()).c_str());
  return 1;
}

}  // namespace coppice
