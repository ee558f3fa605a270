// Events in the JSON format of Chrome's trace viewer, which ui.perfetto.dev and chrome://tracing
// open: spans on the tracks of processes, and spans that may overlap others of their name. Used by
// traces of steps (worker) and of requests (coordinator). Pure, thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice {

class ChromeTrace {
 public:
  // Values are JSON: a number, or a quoted text.
  using Args = std::vector<std::pair<std::string, std::string>>;

  void NameProcess(int process, absl::string_view json_name);
  void NameTrack(int process, int track, absl::string_view json_name);
  // Names of events are plain: no quotes and no escapes. Times in seconds, negative durations are 0.
  void Span(int process, int track, absl::string_view name, double begin_s, double seconds,
            const Args& args = {});
  void Overlapping(int process, uint64_t id, absl::string_view name, double begin_s, double seconds,
                   const Args& args = {});

  // The events since the last call, with ",\n" between them and behind the last.
  std::string Take() { return std::exchange(events_, ""); }

 private:
  void Begin(absl::string_view name, const char* phase, int process, double at_s);
  void End(const Args& args);

  std::string events_;
};

// The document of events that Take has returned. other: JSON of an object about the trace, or "".
std::string ChromeTraceDocument(absl::string_view events, absl::string_view other = "");

}  // namespace coppice
