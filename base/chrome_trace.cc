#include "base/chrome_trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace coppice {

void ChromeTrace::Begin(absl::string_view name, const char* phase, int process, double at_s) {
  absl::StrAppendFormat(&events_, R"({"name":"%s","cat":"coppice","ph":"%s","pid":%d,"ts":%.3f)",
                        name, phase, process, at_s * 1e6);
}

void ChromeTrace::End(const Args& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    absl::StrAppend(&events_, i == 0 ? R"(,"args":{)" : ",", "\"", args[i].first,
                    "\":", args[i].second);
  }
  absl::StrAppend(&events_, args.empty() ? "},\n" : "}},\n");
}

void ChromeTrace::NameProcess(int process, absl::string_view json_name) {
  Begin("process_name", "M", process, 0);
  End({{"name", std::string(json_name)}});
}

void ChromeTrace::NameTrack(int process, int track, absl::string_view json_name) {
  Begin("thread_name", "M", process, 0);
  absl::StrAppend(&events_, R"(,"tid":)", track);
  End({{"name", std::string(json_name)}});
}

void ChromeTrace::Span(int process, int track, absl::string_view name, double begin_s,
                       double seconds, const Args& args) {
  Begin(name, "X", process, begin_s);
  absl::StrAppendFormat(&events_, R"(,"tid":%d,"dur":%.3f)", track, std::max(0.0, seconds) * 1e6);
  End(args);
}

void ChromeTrace::Overlapping(int process, uint64_t id, absl::string_view name, double begin_s,
                              double seconds, const Args& args) {
  Begin(name, "b", process, begin_s);
  absl::StrAppend(&events_, R"(,"tid":0,"id":"0x)", absl::Hex(id), "\"");
  End(args);
  Begin(name, "e", process, begin_s + std::max(0.0, seconds));
  absl::StrAppend(&events_, R"(,"tid":0,"id":"0x)", absl::Hex(id), "\"");
  End({});
}

std::string ChromeTraceDocument(absl::string_view events, absl::string_view other) {
  return absl::StrCat("{\"traceEvents\":[\n", absl::StripSuffix(events, ",\n"),
                      "\n],\"displayTimeUnit\":\"ms\"",
                      other.empty() ? "" : ",\"otherData\":", other, "}");
}

}  // namespace coppice
