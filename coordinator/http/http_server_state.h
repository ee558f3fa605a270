// What the connections of one HTTP server share. Made by http_server. Event-loop thread.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <list>
#include <memory>
#include <utility>

#include "coordinator/http/body_memory.h"
#include "coordinator/http/cors.h"
#include "coordinator/http/http.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/output_batch.h"

namespace coppice::coordinator {

struct HttpServerState {
  explicit HttpServerState(const HttpOptions& http_options)
      : options(http_options),
        cors(http_options.allowed_origins),
        bodies(std::make_shared<BodyMemory>(http_options.max_inflight_body_bytes)),
        outputs(std::make_shared<OutputBatch>()) {}

  // Closes the connection that has waited longest for a request. False if none waits.
  bool MakeRoom() {
    if (waiting.empty()) return false;
    const std::function<void()> close = std::move(waiting.front());
    waiting.pop_front();
    close();
    return true;
  }

  const HttpOptions options;
  const CorsPolicy cors;
  const Clock* clock = nullptr;  // measures the durations that the app observes
  HttpApp* app = nullptr;
  ParsePool* jobs = nullptr;  // compress large answers; nullptr: the event loop does
  std::shared_ptr<boost::asio::ssl::context> tls;  // nullptr = plain HTTP
  const std::shared_ptr<BodyMemory> bodies;
  const std::shared_ptr<OutputBatch> outputs;
  int connections = 0;
  int writing = 0;  // connections on which an answer or a part of one is being written
  // Functions that close a connection: one for each that waits for a request or the rest of its
  // head, or discards what a refused client sends. The connection that has waited longest comes
  // first.
  std::list<std::function<void()>> waiting;
};

}  // namespace coppice::coordinator
