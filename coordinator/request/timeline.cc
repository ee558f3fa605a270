#include "coordinator/request/timeline.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/chrome_trace.h"
#include "coordinator/api/json_text.h"

namespace coppice::coordinator {
namespace {

constexpr int kProcess = 1;

// begin_s: when the replica received the sequence. The parts of a round follow its verdicts.
void AddRound(const proto::RoundTimes& times, double begin_s, int track, ChromeTrace* trace) {
  const double end_s = begin_s + times.end_s(), start_s = end_s - times.round_s();
  trace->Span(kProcess, track, "round", start_s, times.round_s(),
              {{"round", absl::StrCat(times.round())},
               {"rows", absl::StrCat(times.rows())},
               {"width", absl::StrCat(times.width())},
               {"depth", absl::StrCat(times.depth())},
               {"layers", absl::StrCat(times.layers())},
               {"draft", times.draft_source() == proto::NO_DRAFT       ? "\"none\""
                         : times.draft_source() == proto::SUFFIX_DRAFT ? "\"suffix\""
                                                                       : "\"node\""}});
  if (times.depth() > 0) {
    trace->Span(kProcess, track, "wait", start_s, std::min(times.draft_wait_s(), times.round_s()));
    trace->Span(kProcess, track + 1, "draft", start_s, std::min(times.draft_s(), times.round_s()));
  }
  trace->Span(kProcess, track, "verify", end_s - times.commit_s() - times.forward_s(),
              times.forward_s());
  trace->Span(kProcess, track, "commit", end_s - times.commit_s(), times.commit_s());
}

}  // namespace

Timeline TimelineOf(const Request& request, double now_s) {
  const double arrival_s = request.origin().arrival_s;
  Timeline timeline{
      request.origin().request_id, request.origin().trace, arrival_s, now_s - arrival_s, {}};
  for (const Request::Sequence& sequence : request.sequences()) {
    const double started_s = sequence.started_s < 0 ? now_s : sequence.started_s;
    timeline.parts.push_back(
        {sequence.prompt, sequence.sample, started_s - arrival_s, sequence.stats, sequence.rounds});
  }
  return timeline;
}

std::string TimelineJson(const Timeline& timeline) {
  ChromeTrace trace;
  trace.NameTrack(kProcess, 0, "\"request\"");
  ChromeTrace::Args about = {{"id", QuotedText(timeline.request_id)},
                             {"trace_id", QuotedText(timeline.trace.trace_id)},
                             {"span_id", QuotedText(timeline.trace.parent_id)}};
  if (!timeline.trace.state.empty())
    about.emplace_back("tracestate", QuotedText(timeline.trace.state));
  trace.Span(kProcess, 0, "request", 0, timeline.total_s, about);
  int track = 1;
  for (const Timeline::Part& part : timeline.parts) {
    const std::string name = absl::StrCat("prompt ", part.prompt, ", sample ", part.sample);
    trace.NameTrack(kProcess, track, QuotedText(name));
    trace.NameTrack(kProcess, track + 1, QuotedText("drafts of " + name));
    trace.Span(kProcess, track, "queue", 0, part.started_s);
    if (part.stats) {
      const double queue_s = part.stats->queue_ms / 1e3;
      trace.Span(kProcess, track, "queue of the replica", part.started_s, queue_s);
      trace.Span(kProcess, track, "prefill", part.started_s + queue_s,
                 part.stats->prefill_ms / 1e3);
    }
    for (const proto::RoundTimes& times : part.rounds)
      AddRound(times, part.started_s, track, &trace);
    track += 2;
  }
  return ChromeTraceDocument(trace.Take());
}

}  // namespace coppice::coordinator
