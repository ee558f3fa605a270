#include "coordinator/request/timeline.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

using TraceJson = nlohmann::ordered_json;

class Trace {
 public:
  void Name(int track, const std::string& name) {
    TraceJson event;
    event["name"] = "thread_name";
    event["ph"] = "M";
    event["pid"] = 1;
    event["tid"] = track;
    event["args"]["name"] = name;
    events_.push_back(std::move(event));
  }
  // Seconds since the request's arrival.
  TraceJson& Span(int track, const char* name, double begin_s, double seconds) {
    TraceJson event;
    event["name"] = name;
    event["cat"] = "request";
    event["ph"] = "X";
    event["pid"] = 1;
    event["tid"] = track;
    event["ts"] = std::round(begin_s * 1e9) / 1e3;  // microseconds
    event["dur"] = std::round(std::max(0.0, seconds) * 1e9) / 1e3;
    events_.push_back(std::move(event));
    return events_.back();
  }
  std::string Text() const {
    TraceJson json;
    json["traceEvents"] = events_;
    json["displayTimeUnit"] = "ms";
    return json.dump(-1, ' ', false, TraceJson::error_handler_t::replace);
  }

 private:
  TraceJson events_ = TraceJson::array();
};

// begin_s: when the replica received the sequence. The parts of a round follow its verdicts.
void AddRound(const proto::RoundTimes& times, double begin_s, int track, Trace* trace) {
  const double end_s = begin_s + times.end_s(), start_s = end_s - times.round_s();
  TraceJson& round = trace->Span(track, "round", start_s, times.round_s());
  round["args"] = {{"round", times.round()},
                   {"rows", times.rows()},
                   {"width", times.width()},
                   {"depth", times.depth()},
                   {"layers", times.layers()}};
  if (times.depth() > 0) {
    trace->Span(track, "wait", start_s, std::min(times.draft_wait_s(), times.round_s()));
    trace->Span(track + 1, "draft", start_s, std::min(times.draft_s(), times.round_s()));
  }
  trace->Span(track, "verify", end_s - times.commit_s() - times.forward_s(), times.forward_s());
  trace->Span(track, "commit", end_s - times.commit_s(), times.commit_s());
}

}  // namespace

Timeline TimelineOf(const Request& request, double now_s) {
  const double arrival_s = request.origin().arrival_s;
  Timeline timeline{request.origin().request_id, request.origin().trace, now_s - arrival_s, {}};
  for (const Request::Sequence& sequence : request.sequences()) {
    const double started_s = sequence.started_s < 0 ? now_s : sequence.started_s;
    timeline.parts.push_back(
        {sequence.prompt, sequence.sample, started_s - arrival_s, sequence.stats, sequence.rounds});
  }
  return timeline;
}

std::string TimelineJson(const Timeline& timeline) {
  Trace trace;
  trace.Name(0, "request");
  TraceJson& about = trace.Span(0, "request", 0, timeline.total_s)["args"];
  about["id"] = timeline.request_id;
  about["trace_id"] = timeline.trace.trace_id;
  about["span_id"] = timeline.trace.parent_id;
  if (!timeline.trace.state.empty()) about["tracestate"] = timeline.trace.state;
  int track = 1;
  for (const Timeline::Part& part : timeline.parts) {
    const std::string name = absl::StrCat("prompt ", part.prompt, ", sample ", part.sample);
    trace.Name(track, name);
    trace.Name(track + 1, absl::StrCat("drafts of ", name));
    trace.Span(track, "queue", 0, part.started_s);
    if (part.stats) {
      const double queue_s = part.stats->queue_ms / 1e3;
      trace.Span(track, "queue of the replica", part.started_s, queue_s);
      trace.Span(track, "prefill", part.started_s + queue_s, part.stats->prefill_ms / 1e3);
    }
    for (const proto::RoundTimes& times : part.rounds)
      AddRound(times, part.started_s, track, &trace);
    track += 2;
  }
  return trace.Text();
}

}  // namespace coppice::coordinator
