// A request whose body is read: what comes before a Request. A large body is read on another thread
// (http/parse_pool) while the dispatcher counts it and can end it. Made by routes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "coordinator/api/api.h"
#include "coordinator/api/endpoints.h"
#include "coordinator/api/token_endpoints.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/fair_queue.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

struct PendingBody {
  // These do not change while the body is read, nor does what `api` points to.
  ApiContext api;
  EndpointId endpoint = EndpointId::kCompletions;
  HttpRequest request;
  Client client;
  size_t max_body_bytes = 0;  // of the body without its content coding
  int shown_model_len = 0;    // max_model_len that /tokenize shows
  double arrival_s = 0;       // on the dispatcher's clock
  int64_t now_unix = 0;

  std::shared_ptr<HttpExchange> exchange;  // used by the event-loop thread
  // The result is not needed: the client has gone, or the dispatcher has ended the request. Written
  // by the event loop (Abandon), read by any thread.
  std::atomic<bool> abandoned = false;
  std::function<void()> skip;  // gives up its place in the queue, unless it is being read
  // A completion, the answer of another endpoint, or why there is none. Written by Read; the event
  // loop looks at it afterwards.
  std::variant<GenerateRequest, TokenAnswer, ApiError> result =
      ApiError{500, "internal_error", "the request could not be read"};

  // False: it was already. Event-loop thread.
  bool Abandon() {
    if (abandoned.exchange(true)) return false;
    if (skip) skip();
    return true;
  }
  bool completes() const { return FormOf(endpoint).has_value(); }
};

// Removes the content coding of the body, which Routes::CheckHead has accepted, from the request. It
// may take some milliseconds. Any thread.
std::optional<ApiError> DecodeBody(size_t max_body_bytes, HttpRequest* request);

// Fills result. Any thread.
void Read(PendingBody* pending);

}  // namespace coppice::coordinator
