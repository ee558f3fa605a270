// One HTTP connection: reads requests, hands them to the app, writes answers. Made by http_server
// for every socket it accepts. Event-loop thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "coordinator/http/http_server_state.h"

namespace coppice::coordinator {

// Serves the connection until it closes. over_limit: answers 503 too_many_connections and closes.
void ServeConnection(std::shared_ptr<HttpServerState> state, boost::asio::ip::tcp::socket socket,
                     bool over_limit);

}  // namespace coppice::coordinator
