#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace coppice {
namespace {

using LogJson = nlohmann::ordered_json;

constexpr char kJsonHead[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","actor":"%n",)";

std::string DumpLog(const LogJson& json) {
  return json.dump(-1, ' ', false, LogJson::error_handler_t::replace);
}

// %*: the message as a JSON string.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const std::string text = DumpLog(std::string(message.payload.data(), message.payload.size()));
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
};

std::shared_ptr<spdlog::logger> StderrLogger(const std::string& actor,
                                             spdlog::level::level_enum level) {
  auto logger =
      std::make_shared<spdlog::logger>(actor, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  return logger;
}

// Writes members of JSON objects; nullptr in the text form. Set by InitLog.
std::shared_ptr<spdlog::logger>& MembersLogger() {
  static auto* logger = new std::shared_ptr<spdlog::logger>;
  return *logger;
}

double Hundredths(double value) { return std::round(value * 100) / 100; }

struct ToJson {
  LogJson operator()(std::monostate) const { return nullptr; }
  LogJson operator()(double value) const {
    return std::isfinite(value) ? LogJson(Hundredths(value)) : LogJson();
  }
  template <typename Value>
  LogJson operator()(const Value& value) const {
    return value;
  }
};

struct ToText {
  std::string operator()(std::monostate) const { return "-"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const { return absl::StrFormat("%.2f", value); }
  // In quotes if it could be taken for more than one word.
  std::string operator()(const std::string& value) const {
    const bool plain = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
      return c > ' ' && c < 0x7f && c != '"' && c != '\\';
    });
    return plain ? value : absl::StrCat("\"", absl::CHexEscape(value), "\"");
  }
  std::string operator()(const std::vector<std::string>& value) const {
    return value.empty() ? "-" : (*this)(absl::StrJoin(value, ","));
  }
};

}  // namespace

absl::Status InitLog(const std::string& actor, const std::string& level,
                     const std::string& format) {
  auto parsed = spdlog::level::from_str(level == "warn" ? "warning" : level);
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--log_level: unknown level '", level, "', want trace, debug, info, warn, error or off"));
  }
  if (format != "json" && format != "text") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_format: want text or json, got '", format, "'"));
  }
  std::shared_ptr<spdlog::logger> logger = StderrLogger(actor, parsed);
  MembersLogger() = nullptr;
  if (format == "json") {
    auto lines = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    lines->add_flag<JsonMessage>('*').set_pattern(absl::StrCat(kJsonHead, R"("message":%*})"));
    logger->set_formatter(std::move(lines));
    std::shared_ptr<spdlog::logger> members = StderrLogger(actor, parsed);
    members->set_pattern(absl::StrCat(kJsonHead, "%v"), spdlog::pattern_time_type::utc);
    MembersLogger() = std::move(members);
  } else {
    logger->set_pattern("%H:%M:%S.%e %L %n: %v");
  }
  spdlog::set_default_logger(logger);
  return absl::OkStatus();
}

void LogFields(spdlog::level::level_enum level, absl::string_view message,
               const std::vector<LogField>& fields) {
  if (const std::shared_ptr<spdlog::logger>& members = MembersLogger()) {
    if (!members->should_log(level)) return;
    LogJson line;
    line["message"] = message;
    for (const LogField& field : fields) line[field.name] = std::visit(ToJson(), field.value);
    return members->log(level, DumpLog(line).substr(1));  // the head has its brace
  }
  if (!spdlog::should_log(level)) return;
  std::string line(message);
  for (const LogField& field : fields)
    absl::StrAppend(&line, " ", field.name, "=", std::visit(ToText(), field.value));
  spdlog::log(level, line);
}

LogValue TextOrNone(std::string text) {
  return text.empty() ? LogValue() : LogValue(std::move(text));
}

}  // namespace coppice
