// Process-wide logging to stderr through spdlog. Call InitLog once in main; then spdlog::info(...),
// or LogFields for a line that other programs read. Never log prompts, outputs, token ids, stop
// strings or keys.
#pragma once

#include <spdlog/common.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace coppice {

// actor: "coordinator", "worker 0.1", "draft 0". level: trace, debug, info, warn, error, off.
// format: text or json. InvalidArgument names a bad level or format.
absl::Status InitLog(const std::string& actor, const std::string& level, const std::string& format);

// A value of a line with fields. std::monostate: not known, - or null. A number with a fraction has
// two decimals.
using LogValue =
    std::variant<std::monostate, int64_t, double, std::string, std::vector<std::string>>;
struct LogField {
  const char* name;
  LogValue value;
};

// One line: the message, then name=value for each field. In the JSON form the fields are members of
// the line's object, of their own types. Values may have any bytes.
void LogFields(spdlog::level::level_enum level, absl::string_view message,
               const std::vector<LogField>& fields);

// The text or null.
LogValue TextOrNone(std::string text);

}  // namespace coppice
