// The servers of a run and what every request to them carries. Filled by options, used by the
// client. Plain data.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loadgen/base_url.h"

namespace coppice::loadgen {

struct Servers {
  std::vector<BaseUrl> urls;                                 // at least one
  std::vector<std::pair<std::string, std::string>> headers;  // of every request; unique names
  bool insecure = false;                                     // https: any certificate is accepted
};

// Which server the next request goes to. kLeastInFlight: one with the fewest running requests.
enum class EndpointPolicy { kRoundRobin, kLeastInFlight };

}  // namespace coppice::loadgen
