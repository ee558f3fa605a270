#include "loadgen/endpoint_set.h"

#include <utility>

#include "base/status.h"

namespace coppice::loadgen {

absl::Status EndpointSet::Resolve(const Servers& servers) {
  for (const BaseUrl& url : servers.urls) {
    COPPICE_ASSIGN_OR_RETURN(Route route, FindRoute(io_, url, servers.insecure));
    places_.push_back({.route = std::make_unique<Route>(std::move(route))});
  }
  return absl::OkStatus();
}

int EndpointSet::Choose() {
  size_t chosen = next_;
  if (policy_ == EndpointPolicy::kLeastInFlight) {
    // If several have the fewest requests, takes the next one in turn.
    for (size_t i = 1; i < places_.size(); ++i) {
      const size_t other = (next_ + i) % places_.size();
      if (places_[other].running < places_[chosen].running) chosen = other;
    }
  }
  next_ = (chosen + 1) % places_.size();
  ++places_[chosen].running;
  return static_cast<int>(chosen);
}

std::unique_ptr<Connection> EndpointSet::TakeIdle(int endpoint) {
  auto& idle = places_[endpoint].idle;
  if (idle.empty()) return nullptr;
  std::unique_ptr<Connection> connection = std::move(idle.back());
  idle.pop_back();
  return connection;
}

std::unique_ptr<Connection> EndpointSet::MakeConnection(int endpoint) {
  return std::make_unique<Connection>(io_, *places_[endpoint].route, &bytes_);
}

void EndpointSet::Keep(int endpoint, std::unique_ptr<Connection> connection) {
  places_[endpoint].idle.push_back(std::move(connection));
}

void EndpointSet::CloseIdle() {
  for (Place& place : places_) place.idle.clear();
}

}  // namespace coppice::loadgen
