#include "coordinator/options.h"

#include <algorithm>
#include <filesystem>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/flag_sources.h"
#include "base/status.h"
#include "coordinator/http/api_keys.h"
#include "coordinator/http/tls.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:8000", "address:port of the HTTP API");
ABSL_FLAG(std::string, control_listen, "",
          "endpoint for nodes; default: tcp://127.0.0.1:7000, under one mpirun any free port");
ABSL_FLAG(std::string, cluster_key_file, "",
          "file with the key of the cluster (deploy/cluster_key.sh); empty: connections with nodes "
          "are neither authenticated nor encrypted");
ABSL_FLAG(std::string, model, "", "Hugging Face folder of the target model, for its tokenizer");
ABSL_FLAG(std::string, served_model_name, "",
          "name of the model in the API; default: the name of the folder");
ABSL_FLAG(
    std::string, chat_template, "",
    "chat template: a file, none, or a family (chatml, gemma, llama-2, llama-3, mistral, phi-3, "
    "vicuna, zephyr); default: that of the model's folder");
ABSL_FLAG(int, max_model_len, 0,
          "tokens of prompt and completion together, at most; 0 = the model's own limit");
ABSL_FLAG(int, max_queue, 256, "requests that may wait for a replica");
ABSL_FLAG(int, max_queue_per_client, 0,
          "of them, those of one client (a key, or an address without one); 0 = max_queue");
ABSL_FLAG(int, max_connections, 10000, "open HTTP connections, at most");
ABSL_FLAG(int64_t, max_body_bytes, 4 << 20, "bytes of a request body, at most");
ABSL_FLAG(
    int64_t, max_inflight_body_bytes, 256 << 20,
    "bytes of request bodies in memory, of all connections together, at most; never less than "
    "max_body_bytes");
ABSL_FLAG(int, max_header_bytes, 16 << 10, "bytes of a request head, at most");
ABSL_FLAG(int, max_n, 64, "largest n: choices for each prompt");
ABSL_FLAG(int, max_beam_width, 64, "largest beam_width of a request");
ABSL_FLAG(int, max_draft_width, 64, "largest draft_width of a request: draft nodes per layer");
ABSL_FLAG(int, max_draft_depth, 16, "largest draft_depth of a request: draft layers");
ABSL_FLAG(int, default_max_tokens, 256, "max_tokens of a request that gives none");
ABSL_FLAG(double, default_timeout, 600, "deadline in seconds of a request that gives none");
ABSL_FLAG(double, max_timeout, 3600, "longest deadline in seconds that a request may ask for");
ABSL_FLAG(
    std::string, api_keys_file, "",
    "file with the keys of users, KEY [NAME] [weight=N] in each line; default: users need no key");
ABSL_FLAG(std::string, admin_keys_file, "",
          "file with the keys of admins; default: clients on this host are admins");
ABSL_FLAG(std::string, tls_cert_file, "", "certificate chain in PEM; default: plain HTTP");
ABSL_FLAG(std::string, tls_key_file, "", "private key of the certificate, in PEM");
ABSL_FLAG(bool, metrics_require_key, false, "GET /metrics needs a user's key");
ABSL_FLAG(bool, metrics_vllm_names, false,
          "GET /metrics also shows the metrics that vLLM has too under its names, vllm:...");
ABSL_FLAG(int, max_requests_per_minute, 0,
          "completions that a key may begin in a minute; 0 = no limit");
ABSL_FLAG(double, keep_alive_interval, 15,
          "seconds of silence after which a stream gets a comment line");
ABSL_FLAG(double, drain_timeout, 30, "seconds that running requests get after SIGTERM");
ABSL_FLAG(double, heartbeat_interval, 0.5,
          "seconds between the heartbeats of a node; after three missed ones it is lost");
ABSL_FLAG(double, stuck_after, 10,
          "seconds without progress after which a node that has work is lost and told to end");
ABSL_FLAG(double, forget_lost_after, 3600,
          "seconds of silence after which a lost node is no longer listed and its metrics end");
ABSL_FLAG(double, failover_wait, 5,
          "seconds that requests of a lost replica wait for another when none is ready");
ABSL_FLAG(std::string, unknown_fields, "refuse",
          "unknown fields of a request: refuse, or ignore (named in the header X-Coppice-Ignored)");
ABSL_FLAG(int, timelines, 64,
          "requests whose timelines are kept for /admin/timelines; 0 = none is recorded");
ABSL_FLAG(bool, log_requests, true, "one log line for each request");

namespace coppice::coordinator {
namespace {

// Collects all errors in the flags, to report them at once.
class FlagChecker {
 public:
  template <typename T>
  T InRange(const char* name, T value, T low, T high) {
    if (!(value >= low && value <= high))  // so NaN is out of it
      Complain(name, absl::StrCat("must be between ", low, " and ", high, ", got ", value));
    return value;
  }
  void Complain(const char* name, const std::string& what) {
    absl::StrAppend(&complaints_, complaints_.empty() ? "" : "\n", FlagPlace(name), ": ", what);
  }
  absl::Status status() const {
    return complaints_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(complaints_);
  }

 private:
  std::string complaints_;
};

std::string FolderName(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

void ReadLimits(FlagChecker* check, ApiLimits* limits) {
  limits->max_n = check->InRange("max_n", absl::GetFlag(FLAGS_max_n), 1, 1024);
  limits->max_beam_width =
      check->InRange("max_beam_width", absl::GetFlag(FLAGS_max_beam_width), 1, 1024);
  limits->max_draft_width =
      check->InRange("max_draft_width", absl::GetFlag(FLAGS_max_draft_width), 1, 1024);
  limits->max_draft_depth =
      check->InRange("max_draft_depth", absl::GetFlag(FLAGS_max_draft_depth), 1, 64);
  limits->default_max_tokens =
      check->InRange("default_max_tokens", absl::GetFlag(FLAGS_default_max_tokens), 1, 1 << 20);
  limits->max_timeout_s =
      check->InRange("max_timeout", absl::GetFlag(FLAGS_max_timeout), 0.001, 1e6);
  limits->default_timeout_s = check->InRange(
      "default_timeout", absl::GetFlag(FLAGS_default_timeout), 0.001, limits->max_timeout_s);
  const std::string unknown = absl::GetFlag(FLAGS_unknown_fields);
  if (unknown != "refuse" && unknown != "ignore") {
    check->Complain("unknown_fields",
                    absl::StrCat("must be refuse or ignore, got '", unknown, "'"));
  }
  limits->ignore_unknown_fields = unknown == "ignore";
}

// The files that the flags name, so that --check_config finds what is wrong with them.
void CheckFiles(const CoordinatorOptions& options, FlagChecker* check) {
  const absl::Status keys = ApiKeys::Load(options.api_keys_file, options.admin_keys_file).status();
  if (!keys.ok())
    check->Complain(options.api_keys_file.empty() ? "admin_keys_file" : "api_keys_file",
                    std::string(keys.message()));
  const HttpOptions& http = options.http;
  if (http.tls_cert_file.empty() || http.tls_key_file.empty()) return;
  const absl::Status tls = LoadTls(http.tls_cert_file, http.tls_key_file).status();
  if (!tls.ok()) check->Complain("tls_cert_file", std::string(tls.message()));
}

void ReadHttp(FlagChecker* check, HttpOptions* http) {
  http->listen = absl::GetFlag(FLAGS_listen);
  http->max_connections =
      check->InRange("max_connections", absl::GetFlag(FLAGS_max_connections), 1, 1 << 20);
  http->max_body_bytes =
      check->InRange<int64_t>("max_body_bytes", absl::GetFlag(FLAGS_max_body_bytes), 1024, 1 << 30);
  http->max_inflight_body_bytes = std::max<int64_t>(
      http->max_body_bytes,
      check->InRange<int64_t>("max_inflight_body_bytes",
                              absl::GetFlag(FLAGS_max_inflight_body_bytes), 1024, 1ll << 40));
  http->max_header_bytes =
      check->InRange("max_header_bytes", absl::GetFlag(FLAGS_max_header_bytes), 1024, 1 << 20);
  http->tls_cert_file = absl::GetFlag(FLAGS_tls_cert_file);
  http->tls_key_file = absl::GetFlag(FLAGS_tls_key_file);
  if (http->tls_cert_file.empty() != http->tls_key_file.empty()) {
    check->Complain(http->tls_cert_file.empty() ? "tls_cert_file" : "tls_key_file",
                    "TLS needs both a certificate and its key");
  }
  http->keep_alive_interval_s =
      check->InRange("keep_alive_interval", absl::GetFlag(FLAGS_keep_alive_interval), 0.01, 3600.0);
}

}  // namespace

ProgramUsage FlagUsage() {
  ProgramUsage usage = {
      "Serves the HTTP API of a Coppice cluster and keeps its nodes.",
      {{"Model", {"model", "served_model_name", "chat_template", "max_model_len"}},
       {"HTTP",
        {"listen", "max_connections", "max_body_bytes", "max_inflight_body_bytes",
         "max_header_bytes", "keep_alive_interval", "log_requests", "timelines"}},
       {"Keys and TLS",
        {"api_keys_file", "admin_keys_file", "tls_cert_file", "tls_key_file", "metrics_require_key",
         "metrics_vllm_names", "max_requests_per_minute"}},
       {"What a request may ask for",
        {"max_n", "max_beam_width", "max_draft_width", "max_draft_depth", "default_max_tokens",
         "default_timeout", "max_timeout", "unknown_fields"}},
       {"Cluster",
        {"control_listen", "cluster_key_file", "heartbeat_interval", "stuck_after",
         "forget_lost_after", "failover_wait", "max_queue", "max_queue_per_client",
         "drain_timeout"}}}};
  usage.section = "coordinator";
  return usage;
}

absl::StatusOr<LaunchOptions> OptionsFromFlags() {
  LaunchOptions options;
  FlagChecker check;
  options.model = absl::GetFlag(FLAGS_model);
  options.coordinator.tokenizer_dir = options.model;
  options.chat_template = absl::GetFlag(FLAGS_chat_template);
  options.control_listen = absl::GetFlag(FLAGS_control_listen);
  if (options.model.empty()) check.Complain("model", "the folder of the target model is required");
  CoordinatorOptions& coordinator = options.coordinator;
  coordinator.model_name = absl::GetFlag(FLAGS_served_model_name);
  if (coordinator.model_name.empty()) coordinator.model_name = FolderName(options.model);
  ReadLimits(&check, &coordinator.limits);
  ReadHttp(&check, &coordinator.http);
  coordinator.max_model_len =
      check.InRange("max_model_len", absl::GetFlag(FLAGS_max_model_len), 0, 1 << 24);
  coordinator.max_queue = check.InRange("max_queue", absl::GetFlag(FLAGS_max_queue), 1, 1 << 20);
  coordinator.max_queue_per_client =
      check.InRange("max_queue_per_client", absl::GetFlag(FLAGS_max_queue_per_client), 0, 1 << 20);
  coordinator.api_keys_file = absl::GetFlag(FLAGS_api_keys_file);
  coordinator.admin_keys_file = absl::GetFlag(FLAGS_admin_keys_file);
  coordinator.metrics_require_key = absl::GetFlag(FLAGS_metrics_require_key);
  coordinator.metrics_vllm_names = absl::GetFlag(FLAGS_metrics_vllm_names);
  coordinator.max_requests_per_minute = check.InRange(
      "max_requests_per_minute", absl::GetFlag(FLAGS_max_requests_per_minute), 0, 1 << 20);
  coordinator.drain_timeout_s =
      check.InRange("drain_timeout", absl::GetFlag(FLAGS_drain_timeout), 0.0, 86400.0);
  coordinator.heartbeat_interval_s =
      check.InRange("heartbeat_interval", absl::GetFlag(FLAGS_heartbeat_interval), 0.01, 60.0);
  coordinator.stuck_after_s =
      check.InRange("stuck_after", absl::GetFlag(FLAGS_stuck_after), 0.1, 86400.0);
  // A node that has been silent for so long has lost its connection. So it registers, if it comes back.
  coordinator.forget_lost_after_s =
      check.InRange("forget_lost_after", absl::GetFlag(FLAGS_forget_lost_after), 60.0, 1e9);
  coordinator.failover_wait_s =
      check.InRange("failover_wait", absl::GetFlag(FLAGS_failover_wait), 0.0, 86400.0);
  coordinator.timelines = check.InRange("timelines", absl::GetFlag(FLAGS_timelines), 0, 1 << 16);
  coordinator.log_requests = absl::GetFlag(FLAGS_log_requests);
  CheckFiles(coordinator, &check);
  if (!check.status().ok()) return check.status();
  COPPICE_ASSIGN_OR_RETURN(options.channel.key,
                           comm::ClusterKey::Load(absl::GetFlag(FLAGS_cluster_key_file)));
  return options;
}

}  // namespace coppice::coordinator
