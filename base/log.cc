#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"

namespace coppice {

absl::Status InitLog(const std::string& actor, const std::string& level,
                     const std::string& format) {
  auto logger =
      std::make_shared<spdlog::logger>(actor, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  auto parsed = spdlog::level::from_str(level == "warn" ? "warning" : level);
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--log_level: unknown level '", level, "', want trace, debug, info, warn, error or off"));
  }
  if (format == "json") {
    logger->set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","actor":"%n","message":"%v"})",
        spdlog::pattern_time_type::utc);
  } else if (format == "text") {
    logger->set_pattern("%H:%M:%S.%e %L %n: %v");
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_format: want text or json, got '", format, "'"));
  }
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
  return absl::OkStatus();
}

}  // namespace coppice
