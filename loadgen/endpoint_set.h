// The servers of a run, their idle connections and how many requests each of them has. Used by the
// client. Thread-compatible.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "loadgen/connection.h"
#include "loadgen/servers.h"

namespace coppice::loadgen {

class EndpointSet {
 public:
  EndpointSet(boost::asio::io_context& io, EndpointPolicy policy) : io_(io), policy_(policy) {}

  absl::Status Resolve(const Servers& servers);
  // The server of the next request, which then counts as running there until Done.
  int Choose();
  void Done(int endpoint) { --places_[endpoint].running; }

  const BaseUrl& url(int endpoint) const { return places_[endpoint].route->url; }
  // An idle connection, or nullptr.
  std::unique_ptr<Connection> TakeIdle(int endpoint);
  std::unique_ptr<Connection> MakeConnection(int endpoint);
  void Keep(int endpoint, std::unique_ptr<Connection> connection);
  void CloseIdle();
  const ByteCount& bytes() const { return bytes_; }

 private:
  struct Place {
    std::unique_ptr<Route> route;  // must outlive the connections
    std::vector<std::unique_ptr<Connection>> idle;
    int64_t running = 0;
  };

  boost::asio::io_context& io_;
  const EndpointPolicy policy_;
  ByteCount bytes_;
  std::vector<Place> places_;
  size_t next_ = 0;
};

}  // namespace coppice::loadgen
