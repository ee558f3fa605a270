// The whole coordinator: HTTP server, routes, dispatcher, registry and control loop around one
// event loop. Made by coordinator_main and by tests. One thread calls Run; any thread may call
// Drain.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "comm/channel.h"
#include "coordinator/api/api.h"
#include "coordinator/http/http_server.h"
#include "tokenizer/chat_template/chat_prompt.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

// Each is a flag of coppice-coordinator (coordinator/options.cc), except tokenizer_dir.
struct CoordinatorOptions {
  // Folder of the tokenizer, for error messages.
  std::string tokenizer_dir;

  // The name that requests give as `model`, and that answers carry.
  std::string model_name;

  HttpOptions http;
  ApiLimits limits;

  // Files of keys, a line `KEY [NAME] [weight=N]` for each: of users, and of admins, who are users
  // too. Empty: users need no key; admins are the clients on this host.
  std::string api_keys_file, admin_keys_file;

  // Whether GET /metrics needs a user's key.
  bool metrics_require_key = false;

  // Whether the metrics that vLLM has too are also exposed under its names (`vllm:...`).
  bool metrics_vllm_names = false;

  // Completions that a key may begin in a minute; all clients without keys together. 0: no limit.
  int max_requests_per_minute = 0;

  // Tokens of prompt and completion of one request, at most. 0: the model's own limit. Set it to
  // keep single requests from reserving much KV.
  int max_model_len = 0;

  // The most requests that wait for a replica. One more is refused with `queue_full`, or takes the
  // place of another client's if its own client has fewer waiting. Raise it when clients would
  // rather wait than retry.
  int max_queue = 256;

  // The most waiting requests of one client: of a key, or of an address without a key. 0: all
  // places. Set it to tell clients early that they send too much.
  int max_queue_per_client = 0;

  // Seconds that running requests get after SIGTERM. Then the process ends without them.
  double drain_timeout_s = 30;

  // Seconds between the heartbeats of a node. A node that misses three is lost, so a smaller value
  // finds dead nodes sooner and a larger one tolerates a busy machine. Give the nodes the same
  // value.
  double heartbeat_interval_s = 0.5;

  // Seconds without progress after which a node that has work, and still sends heartbeats, is lost
  // and told to end. Must exceed the longest time without progress, which is about one layer of a
  // pass. Raise it for slow machines or very large models.
  double stuck_after_s = 10;

  // Seconds that the requests of a lost replica wait for another one when none is ready. Then they
  // fail. Raise it if a replica is restarted automatically and takes longer than this.
  double failover_wait_s = 5;

  // Seconds of silence after which a lost node is forgotten: it is no longer listed, and its
  // metrics end. Set it lower if nodes come and go often under new names.
  double forget_lost_after_s = 3600;

  // Requests whose timelines are kept after their end, for GET /admin/timelines. 0: none is
  // recorded.
  int timelines = 64;

  // Whether each request is logged, in one line when it ends.
  bool log_requests = true;
};

class Coordinator {
 public:
  // Binds the HTTP port. Unavailable names address and reason.
  // chat: nullptr if the model has no chat template; it uses the tokenizer.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(
      const CoordinatorOptions& options, std::unique_ptr<tokenizer::Tokenizer> tokenizer,
      std::unique_ptr<tokenizer::ChatPrompt> chat);
  virtual ~Coordinator() = default;
  // Lets nodes register.
  virtual void ServeNodes(std::unique_ptr<comm::ServerChannel> channel) = 0;
  // SIGTERM drains within drain_timeout, SIGINT within two seconds. A second signal ends at once.
  // SIGHUP reloads. For programs, not for tests.
  virtual void HandleSignals() = 0;
  // Serves until drained, then tells every node to stop.
  virtual void Run() = 0;
  // Refuses new requests and ends Run when the running ones have finished, or after `seconds`. Any
  // thread.
  virtual void Drain(double seconds, const std::string& why) = 0;
  // Reads the keys and the files of TLS again. What cannot be read stays as it was, with a line in
  // the log. Any thread.
  virtual void Reload() = 0;
  virtual int http_port() const = 0;
  virtual std::string http_address() const = 0;
};

}  // namespace coppice::coordinator
