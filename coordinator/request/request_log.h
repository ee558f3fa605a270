// The log line of a request (docs/api.md 4). It never has the prompt, output, ids, stop strings or
// bias.
#pragma once

#include <string>

#include "coordinator/http/api_error.h"
#include "coordinator/http/http.h"
#include "coordinator/request/request.h"

namespace coppice::coordinator {

// How the request as a whole ended: stop, length, abort, error or timeout.
std::string FinishedReason(const Request& request);
void LogRequest(const Request& request, double now_s, bool enabled);
// The log line of a request that is refused before it becomes a Request.
void LogRefusal(const HttpRequest& request, const ApiError& error, bool enabled);

}  // namespace coppice::coordinator
