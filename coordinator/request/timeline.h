// How a request spent its time, as Chrome trace JSON (chrome://tracing, ui.perfetto.dev): a track
// for the request, and two for each sequence, one of the replica and one of its drafts. Pure.
#pragma once

#include <string>
#include <vector>

#include "coordinator/request/request.h"

namespace coppice::coordinator {

// Seconds count from the request's arrival.
struct Timeline {
  struct Part {  // one sequence
    int prompt = 0, sample = 0;
    double started_s = 0;  // time of its dispatch
    std::optional<DecodingStats> stats;
    std::vector<proto::RoundTimes> rounds;
  };
  std::string request_id;
  TraceContext trace;
  double arrival_s = 0;  // on the dispatcher's clock
  double total_s = 0;
  std::vector<Part> parts;
};

// now_s: on the dispatcher's clock; taken as the end of parts that still run.
Timeline TimelineOf(const Request& request, double now_s);
std::string TimelineJson(const Timeline& timeline);

}  // namespace coppice::coordinator
