// Clients of short requests that are not streamed: each asks again as soon as it has its answer.
// One thread.
#pragma once

#include <vector>

namespace coppice::bench {

struct RequestsSeen {
  double seconds = 0;
  int failed = 0;                    // answers other than 200
  std::vector<double> latencies_ms;  // of the answered requests, ascending
};

// clients: of the server on this host's port, each with a connection of its own. pause_s: between
// an answer and the next request. Those of the first warm_s seconds are not counted.
RequestsSeen AskRepeatedly(int port, int clients, double pause_s, double warm_s, double seconds);

}  // namespace coppice::bench
