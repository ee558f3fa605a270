// Traces of production services: arrival times and lengths of requests, without their texts. Called
// by main before the run. Pure, except for reading the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/prompt.h"

namespace coppice::loadgen {

struct Trace {
  std::vector<Prompt> prompts;  // input_len, output_tokens and at_s, by time
  int empty_rows = 0;           // left out: no input or no output tokens
  int too_long_rows = 0;        // left out: longer than the model's context
};

// CSV with the columns TIMESTAMP (date and time), ContextTokens, GeneratedTokens. Patel et al.
// 2024, "Splitwise", and later traces of the same form. Errors name path and line.
absl::StatusOr<Trace> ReadAzureTrace(const std::string& path);

// CSV with the columns Timestamp (seconds), Request tokens, Response tokens. Wang et al. 2025,
// "BurstGPT".
absl::StatusOr<Trace> ReadBurstGptTrace(const std::string& path);

// The rows from start_s on, for window_s seconds of the trace (0 = to its end); rows that do not
// fit into max_model_len tokens (0 = not known) are dropped and counted. Then at_s counts from
// start_s, at `speed`.
Trace CutTrace(Trace trace, double start_s, double window_s, double speed, int max_model_len);

}  // namespace coppice::loadgen
