// Sends the requests of a run and measures their streams: HTTP/1.1, kept-alive connections, one
// thread with one coroutine for each request. Called by main; blocks until every request has ended.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/base_url.h"
#include "loadgen/record.h"

namespace coppice::loadgen {

struct LoadPlan {
  BaseUrl url;
  std::string endpoint;             // "/v1/completions"
  std::vector<std::string> bodies;  // JSON, one for each request
  // When each is to be sent, ascending; empty = as soon as max_concurrency has room.
  std::vector<double> arrivals_s;
  int max_concurrency = 0;  // 0 = no limit
  double timeout_s = 600;   // of one request, from sending
};

struct LoadProgress {
  int total = 0, done = 0, running = 0, failed = 0;
  int64_t output_tokens = 0;  // of the requests that are done
  double elapsed_s = 0;
};

// Returns a record for each body, in order. Calls progress about once a second. Unavailable when
// the host does not resolve; later failures are in the record of their request.
absl::StatusOr<std::vector<RequestRecord>> RunLoad(
    const LoadPlan& plan, const std::function<void(const LoadProgress&)>& progress);

// The body of a 200 answer; Unavailable with the reason otherwise.
absl::StatusOr<std::string> HttpGet(const BaseUrl& url, const std::string& path, double timeout_s);

}  // namespace coppice::loadgen
