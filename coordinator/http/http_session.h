// One HTTP connection: reads requests, hands them to the app, writes answers. Made by http_server
// for every socket it accepts. Event-loop thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "coordinator/http/http.h"
#include "coordinator/http/http_server.h"

namespace coppice::coordinator {

struct HttpServerState {
  HttpOptions options;
  const Clock* clock = nullptr;  // measures the durations that the app observes
  HttpApp* app = nullptr;
  std::shared_ptr<boost::asio::ssl::context> tls;  // nullptr = plain HTTP
  int connections = 0;
  int writing = 0;  // connections on which an answer or a part of one is being written
};

// Serves the connection until it closes. over_limit: answers 503 too_many_connections and closes.
void ServeConnection(std::shared_ptr<HttpServerState> state, boost::asio::ip::tcp::socket socket,
                     bool over_limit);

}  // namespace coppice::coordinator
