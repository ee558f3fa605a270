// The whole coordinator: HTTP server, routes, dispatcher, registry and control loop around one
// event loop. Made by coordinator_main and by tests. One thread calls Run; any thread may call
// Drain.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "catalogue/catalogue_store.h"
#include "comm/channel.h"
#include "coordinator/cluster/cluster_options.h"
#include "coordinator/http/http_server.h"
#include "coordinator/message/message_syntax.h"
#include "tokenizer/chat_template/chat_prompt.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

// The defaults of the flags of coppice-coordinator (coordinator/options.cc).
struct CoordinatorOptions {
  // The names that requests may give as `model`. The first is that of requests without one, and of
  // the metrics. At least one.
  std::vector<std::string> model_names;

  // How the model writes calls of tools and its reasoning; nullptr, nullopt: neither is looked for.
  const ToolFormat* tool_format = nullptr;
  std::optional<ReasoningMarks> reasoning;

  // Of the checkpoint; empty with --generation_config=none.
  SamplingDefaults sampling_defaults;

  // nullptr: there is none.
  std::shared_ptr<catalogue::CatalogueStore> catalogues;

  // The answer of GET /tokenizer_info.
  std::string tokenizer_info = "{}";

  HttpOptions http;
  DispatcherOptions dispatcher;
  RegistryOptions registry;  // all but tokenizer_vocab, which Start sets

  // Files of keys, a line `KEY [NAME] [weight=N]` for each: of users, and of admins, who are users
  // too. Empty: users need no key; admins are the clients on this host.
  std::string api_keys_file, admin_keys_file;

  // Whether there are pages for people, at / and /docs.
  bool web = true;

  // Whether GET /metrics needs a user's key.
  bool metrics_require_key = false;

  // Whether metrics that vLLM also has are also exposed under its names (`vllm:...`).
  bool metrics_vllm_names = false;

  // Completions that a key may begin in a minute; all clients without keys together. 0: no limit.
  int max_requests_per_minute = 0;

  // Seconds that running requests get after SIGTERM. Then the process ends without them.
  double drain_timeout_s = 30;
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
  // Reads the keys, the TLS files and the catalogues again. Files that cannot be read leave the old
  // state in use and a line in the log. Any thread.
  virtual void Reload() = 0;
  virtual int http_port() const = 0;
  virtual std::string http_address() const = 0;
};

}  // namespace coppice::coordinator
