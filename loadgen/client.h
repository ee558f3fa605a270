// Sends the requests of a run and measures their streams: HTTP/1.1, kept-alive connections, one
// thread with one coroutine for each conversation. Called by main; blocks until the run has ended.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/record.h"
#include "loadgen/request_source.h"
#include "loadgen/servers.h"

namespace coppice::loadgen {

struct LoadPlan {
  static constexpr int64_t kEndless = -1;

  Servers servers;
  EndpointPolicy policy = EndpointPolicy::kRoundRobin;
  std::string endpoint;                   // "/v1/completions"
  std::string request_id_prefix;          // X-Request-Id: prefix and number; "" = none
  const RequestSource* source = nullptr;  // must outlive the run
  int64_t conversations = 0;              // or kEndless, with a duration
  // When each conversation begins, ascending; empty = as soon as max_concurrency has room.
  std::vector<double> arrivals_s;
  int max_concurrency = 0;  // conversations at a time; 0 = no limit
  double timeout_s = 600;   // seconds per request, from sending
  // No request is sent after duration_s (0 = no limit); grace_s later those that still run are cut.
  double duration_s = 0, grace_s = std::numeric_limits<double>::infinity();
  // This percentage of the requests, chosen by the seed, is cut cancel_delay_s after sending.
  double cancel_percent = 0, cancel_delay_s = 0;
  uint64_t seed = 0;
  bool keep_texts = false;
};

struct LoadProgress {
  int64_t total = 0;  // number of requests; 0 = not known
  int64_t done = 0, running = 0, failed = 0;
  int64_t output_tokens = 0;  // output tokens of the requests that are done
  double elapsed_s = 0;
};

struct LoadResult {
  std::vector<RequestRecord> records;  // by conversation, then by turn
  ByteCount bytes;
  double wall_s = 0, cpu_s = 0;  // cpu_s: of this process
};

// Calls progress about once a second. Unavailable when a host does not resolve; later failures are
// in the record of their request.
absl::StatusOr<LoadResult> RunLoad(const LoadPlan& plan,
                                   const std::function<void(const LoadProgress&)>& progress);

}  // namespace coppice::loadgen
