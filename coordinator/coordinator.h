// The assembled coordinator: HTTP server, routes, dispatcher, registry and control loop around one
// event loop. Built by coordinator_main and by tests. Run is called by one thread, Drain by any.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "comm/channel.h"
#include "coordinator/api/api.h"
#include "coordinator/http/http_server.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

struct CoordinatorOptions {
  std::string tokenizer_dir;  // the folder of the tokenizer, for messages
  std::string model_name;
  HttpOptions http;
  ApiLimits limits;
  int max_model_len = 0;  // 0: the model's own
  int max_queue = 256;
  double drain_timeout_s = 30;
  double heartbeat_interval_s = 0.5;
  double stuck_after_s = 10;
  double failover_wait_s = 5;
  bool log_requests = true;
};

class Coordinator {
 public:
  // Binds the HTTP port. Unavailable names address and reason.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(
      const CoordinatorOptions& options, std::unique_ptr<tokenizer::Tokenizer> tokenizer);
  virtual ~Coordinator() = default;
  // Nodes may register from now on.
  virtual void ServeNodes(std::unique_ptr<comm::ServerChannel> channel) = 0;
  // SIGTERM drains within drain_timeout, SIGINT within two seconds. A second signal ends at once.
  // For programs, not for tests.
  virtual void HandleSignals() = 0;
  // Serves until drained, then tells every node to stop.
  virtual void Run() = 0;
  // Refuses new requests and ends Run when the running ones have finished, or after `seconds`. Any
  // thread.
  virtual void Drain(double seconds, const std::string& why) = 0;
  virtual int http_port() const = 0;
  virtual std::string http_address() const = 0;
};

}  // namespace coppice::coordinator
