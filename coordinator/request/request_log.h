// The one log line of a request (docs/api.md 4). Never prompt, output, ids, stop strings or bias.
#pragma once

#include <string>

#include "coordinator/request/request.h"

namespace coppice::coordinator {

// stop, length, abort, error or timeout: how the request as a whole ended.
std::string FinishedReason(const Request& request);
void LogRequest(const Request& request, double now_s, bool enabled);

}  // namespace coppice::coordinator
