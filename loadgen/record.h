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
  double sent_s = 0;                 // when it was sent
  double end_s = 0;                  // last byte, or the failure
  std::vector<double> text_times_s;  // of each event with text
  int endpoint = -1;                 // index of its server; -1 = it was never sent

  int status = 0;   // HTTP; 0 = no answer
  bool ok = false;  // 200 and [DONE], no error event
  // Why a request is not ok. `cancelled` and `unfinished` do not count as failed.
  bool timed_out = false;
  bool cancelled = false;   // by the run, on purpose (--request-cancellation-rate)
  bool unfinished = false;  // the run ended before this request
  std::string error;        // "" when ok

  int choices = 1;            // n of the request
  int64_t prompt_tokens = 0;  // usage, else the length of an id prompt
  int64_t output_tokens = 0;  // of all choices: usage, else events with text
  bool tokens_from_usage = false;
  std::string text;  // of choice 0, where it is kept
  std::optional<SpeculationUsage> speculation;
  std::optional<double> energy_joules;  // from usage, where the server measures it

  bool failed() const { return !ok && !cancelled && !unfinished; }
};

// Bytes as HTTP sees them, without those of TLS.
struct ByteCount {
  int64_t sent = 0, received = 0;
};

// From sending to the first text.
inline std::optional<double> TtftS(const RequestRecord& r) {
  if (r.text_times_s.empty()) return std::nullopt;
  return r.text_times_s.front() - r.sent_s;
}

inline double TokensPerChoice(const RequestRecord& r) {
  return static_cast<double>(r.output_tokens) / (r.choices > 1 ? r.choices : 1);
}

// Time per token after the first.
inline std::optional<double> TpotS(const RequestRecord& r) {
  const std::optional<double> first = TtftS(r);
  if (!first || TokensPerChoice(r) <= 1) return std::nullopt;
  return (r.end_s - r.sent_s - *first) / (TokensPerChoice(r) - 1);
}

}  // namespace coppice::loadgen
