// The measurements of one request. Written by the client and completion_stream, read by report.
// Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coppice::loadgen {

// usage.speculation of the response (absent on other servers).
struct SpeculationUsage {
  int64_t rounds = 0, plain_rounds = 0, target_passes = 0, layers = 0;
  int64_t drafted_nodes = 0, accepted_nodes = 0;
  std::vector<int64_t> accepted_by_layer;
  std::optional<double> accepted_width;
};

// Times are seconds since the start of the run.
struct RequestRecord {
  double intended_s = 0;             // when it was meant to be sent
  double sent_s = 0;                 // when it was
  double end_s = 0;                  // last byte, or the failure
  std::vector<double> text_times_s;  // of each event with text

  int status = 0;   // HTTP; 0 = no answer
  bool ok = false;  // 200 and [DONE], no error event
  bool timed_out = false;
  std::string error;  // "" when ok

  int choices = 1;            // n of the request
  int64_t prompt_tokens = 0;  // usage, else the length of an id prompt
  int64_t output_tokens = 0;  // of all choices: usage, else events with text
  bool tokens_from_usage = false;
  std::optional<SpeculationUsage> speculation;
  std::optional<double> energy_joules;  // usage: where the server measures it
};

}  // namespace coppice::loadgen
