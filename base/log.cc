#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace coppice {
namespace {

// %*: the message as the content of a JSON string.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    for (const char c : message.payload) {
      std::string text(1, c);
      if (c == '"' || c == '\\') text.insert(0, 1, '\\');
      if (static_cast<unsigned char>(c) < 0x20)
        text = absl::StrCat("\\u", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad4));
      line.append(text.data(), text.data() + text.size());
    }
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
};

}  // namespace

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
    auto lines = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    lines->add_flag<JsonMessage>('*').set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","actor":"%n","message":"%*"})");
    logger->set_formatter(std::move(lines));
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
