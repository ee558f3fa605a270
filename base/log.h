// Process-wide logging to stderr through spdlog. Call InitLog once in main; then spdlog::info(...).
// Never log prompts, outputs, token ids, stop strings or keys.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace coppice {

// actor: "coordinator", "worker 0.1", "draft 0". level: trace, debug, info, warn, error, off.
// format: text or json. InvalidArgument names a bad level or format.
absl::Status InitLog(const std::string& actor, const std::string& level, const std::string& format);

}  // namespace coppice
