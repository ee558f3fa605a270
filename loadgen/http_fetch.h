// A single request that blocks: /v1/models, /tokenize, /metrics. Called by main before and after
// the run.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "loadgen/servers.h"

namespace coppice::loadgen {

// The body of a 200 answer of servers.urls[index]; Unavailable with the reason otherwise. body "" =
// GET, else POST.
absl::StatusOr<std::string> HttpFetch(const Servers& servers, size_t index, const std::string& path,
                                      const std::string& body, double timeout_s);

}  // namespace coppice::loadgen
