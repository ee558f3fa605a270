#include "coordinator/options.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/http/api_keys.h"
#include "coordinator/http/cors.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/tls.h"
#include "coordinator/message/tool_format.h"
#include "model_files/model_files.h"
#include "tokenizer/chat_template/template_source.h"

namespace coppice::coordinator {
namespace {

std::vector<std::string> ToolFormatWords() {
  std::vector<std::string> words = {"auto", "none"};
  for (const ToolFormat& format : ToolFormats()) words.push_back(format.name);
  return words;
}

constexpr double kLeastInterval_s = 0.01;  // between comments

FlagGroup ModelGroup(LaunchOptions* options) {
  return {"Model",
          {{.name = "model",
            .value = &options->model,
            .required = true,
            .text = "Hugging Face folder or GGUF file of the target model, for its tokenizer"},
           {.name = "served_model_name",
            .value = &options->coordinator.model_names,
            .own_default = "the name of the folder",
            .text = "names of the model in the API, with commas: requests may give any of them, "
                    "answers carry the one that was given, metrics the first"},
           {.name = "chat_template",
            .value = &options->chat_template,
            .own_default = "that of the model's folder",
            .text = "chat template: a file, none, or a family (chatml, gemma, llama-2, llama-3, "
                    "mistral, phi-3, vicuna, zephyr)",
            .more = "[api.md](api.md) 2.3."},
           {.name = "catalogues",
            .value = &options->catalogues,
            .own_default = "none",
            .text = "NAME=FILE of each catalogue that requests may name (coppice-catalogue), with "
                    "commas",
            .more = "Workers and draft nodes get the same. [catalogues.md](catalogues.md)."},
           {.name = "tool_format",
            .value = &options->tool_format,
            .words = ToolFormatWords(),
            .text = "how the model writes calls of tools; auto: as its chat template says; none: "
                    "they are not looked for",
            .more = "[api.md](api.md) 2.8."},
           {.name = "reasoning",
            .value = &options->reasoning,
            .words = {"auto", "none"},
            .text = "auto: reasoning between the marks of the chat template (<think>) stands apart "
                    "from the content; none: it is content",
            .more = "[api.md](api.md) 2.9."},
           {.name = "generation_config",
            .value = &options->generation_config,
            .words = {"auto", "none"},
            .text = "auto: temperature, top_k, top_p, min_p and repetition_penalty of the model's "
                    "generation_config.json are the defaults of requests that sample; none: they "
                    "are not read",
            .more = "[api.md](api.md) 2."},
           {.name = "max_model_len",
            .value = &options->coordinator.dispatcher.max_model_len,
            .range = {0, 1 << 24},
            .own_default = "0, for the model's own limit",
            .text = "tokens of prompt and completion together, at most",
            .more = "Set it to keep single requests from reserving much KV."}}};
}

FlagGroup HttpGroup(CoordinatorOptions* options) {
  HttpOptions* http = &options->http;
  return {
      "HTTP",
      {{.name = "listen",
        .value = &http->listen,
        .text = "address:port of the HTTP API",
        .more = "Before you listen on other addresses than this host's own, give keys and TLS."},
       {.name = "max_connections",
        .value = &http->max_connections,
        .range = {1, 1 << 20},
        .text = "open HTTP connections, at most",
        .more = "For one more, the one that has waited longest for a request is closed. If none "
                "waits, it gets a 503."},
       {.name = "max_body_bytes",
        .value = &http->max_body_bytes,
        .range = {1024, 1 << 30},
        .text = "bytes of a request body, at most",
        .more = "Raise it for very long prompts."},
       {.name = "max_inflight_body_bytes",
        .value = &http->max_inflight_body_bytes,
        .range = {1024, 1ll << 40},
        .text = "bytes of request bodies in memory, of all connections together, at most; never "
                "less than max_body_bytes",
        .more = "When more arrive, the largest body that is still arriving is refused with 503."},
       {.name = "max_header_bytes",
        .value = &http->max_header_bytes,
        .range = {1024, 1 << 20},
        .text = "bytes of a request head, at most"},
       {.name = "keep_alive_interval",
        .value = &http->keep_alive_interval_s,
        .range = {0, 3600},
        .text = "seconds of silence after which a stream gets a comment line; 0 = no comments",
        .more = "Keep it below the idle timeout of any proxy in between. Switch comments off for "
                "clients that cannot read them."},
       {.name = "allowed_origins",
        .value = &http->allowed_origins,
        .own_default = "none",
        .text = "origins whose web pages may use the API (CORS), such as "
                "https://chat.example.com; * = all",
        .more = "[api.md](api.md) 4."},
       {.name = "web",
        .value = &options->web,
        .text = "pages for people at / and /docs; false: they are 404",
        .more = "[api.md](api.md) 1."},
       {.name = "log_requests",
        .value = &options->dispatcher.log_requests,
        .text = "one log line for each request"},
       {.name = "timelines",
        .value = &options->dispatcher.timelines,
        .range = {0, 1 << 16},
        .text = "requests whose timelines are kept for /admin/timelines; 0 = none is recorded",
        .more = "[api.md](api.md) 1.1."}}};
}

FlagGroup KeysGroup(CoordinatorOptions* options) {
  return {
      "Keys and TLS",
      {{.name = "api_keys_file",
        .value = &options->api_keys_file,
        .own_default = "users need no key",
        .text = "file with the keys of users, KEY [NAME] [weight=N] in each line",
        .more = "[api.md](api.md) 4. SIGHUP reads it again, as the other files of this group."},
       {.name = "admin_keys_file",
        .value = &options->admin_keys_file,
        .own_default = "clients on this host are admins",
        .text = "file with the keys of admins"},
       {.name = "tls_cert_file",
        .value = &options->http.tls_cert_file,
        .own_default = "plain HTTP",
        .text = "certificate chain in PEM"},
       {.name = "tls_key_file",
        .value = &options->http.tls_key_file,
        .text = "private key of the certificate, in PEM"},
       {.name = "metrics_require_key",
        .value = &options->metrics_require_key,
        .text = "GET /metrics needs a user's key"},
       {.name = "metrics_vllm_names",
        .value = &options->metrics_vllm_names,
        .text = "GET /metrics also shows the metrics that vLLM has too under its names, vllm:..."},
       {.name = "max_requests_per_minute",
        .value = &options->max_requests_per_minute,
        .range = {0, 1 << 20},
        .text = "completions that a key may begin in a minute; 0 = no limit",
        .more = "All clients without keys have one limit together."}}};
}

FlagGroup RequestGroup(LaunchOptions* options) {
  ApiLimits* limits = &options->coordinator.dispatcher.limits;
  return {
      "Limits of requests",
      {{.name = "max_n",
        .value = &limits->max_n,
        .range = {1, 1024},
        .text = "largest n: choices for each prompt"},
       {.name = "max_beam_width",
        .value = &limits->max_beam_width,
        .range = {1, 1024},
        .text = "largest beam_width of a request",
        .more = "Each beam is a row of every step and needs KV of its own, so this bounds the "
                "cost of a request. A replica refuses more beams than its `--max_rows`, and drafts "
                "only into the rows that the beams leave."},
       {.name = "max_draft_width",
        .value = &limits->max_draft_width,
        .range = {1, 1024},
        .text = "largest draft_width of a request: draft nodes per layer"},
       {.name = "max_draft_depth",
        .value = &limits->max_draft_depth,
        .range = {1, 64},
        .text = "largest draft_depth of a request: draft layers"},
       {.name = "default_max_tokens",
        .value = &limits->default_max_tokens,
        .range = {1, 1 << 20},
        .text = "max_tokens of a completion that gives none"},
       {.name = "default_chat_max_tokens",
        .value = &limits->default_chat_max_tokens,
        .range = {0, 1 << 24},
        .text = "max_tokens of a chat that gives none; 0 = the rest of the context",
        .more = "Until some of these chats have ended, each is expected to need KV for all of its "
                "max_tokens, so with a large value fewer run at the same time at first."},
       {.name = "default_timeout",
        .value = &limits->default_timeout_s,
        .range = {0.001, 1e6},
        .text = "deadline in seconds of a request that gives none",
        .more = "At most `--max_timeout`."},
       {.name = "max_timeout",
        .value = &limits->max_timeout_s,
        .range = {0.001, 1e6},
        .text = "longest deadline in seconds that a request may ask for"},
       {.name = "least_priority",
        .value = &limits->least_priority,
        .own_default = "no limit",
        .text = "least `priority` of a request that counts; a smaller one is taken for this",
        .more = "0 prevents that one client goes before all others."},
       {.name = "unknown_fields",
        .value = &options->unknown_fields,
        .words = {"ignore", "refuse"},
        .text = "unknown fields of a request, and hints that are not served; ignored ones are "
                "named in the header X-Coppice-Ignored",
        .more = "[api.md](api.md) 2."}}};
}

FlagGroup ClusterGroup(LaunchOptions* options) {
  DispatcherOptions* dispatcher = &options->coordinator.dispatcher;
  RegistryOptions* registry = &options->coordinator.registry;
  return {
      "Cluster",
      {{.name = "control_listen",
        .value = &options->control_listen,
        .own_default = "tcp://127.0.0.1:7000, under one mpirun any free port",
        .text = "endpoint for nodes"},
       {.name = "cluster_key_file",
        .value = &options->cluster_key_file,
        .text = "file with the key of the cluster (deploy/cluster_key.sh); empty: connections with "
                "nodes are neither authenticated nor encrypted",
        .more = "[operating.md](operating.md), \"Security between nodes\"."},
       {.name = "heartbeat_interval",
        .value = &registry->heartbeat_interval_s,
        .range = {0.01, 60},
        .text = "seconds between the heartbeats of a node; after three missed ones it is lost",
        .more =
            "Give the nodes the same value. A smaller one finds dead nodes sooner, a larger one "
            "tolerates a busy machine."},
       {.name = "stuck_after",
        .value = &registry->stuck_after_s,
        .range = {0.1, 86400},
        .text = "seconds without progress after which a node that has work is lost and told to end",
        .more = "Raise it for slow machines or very large models: it must exceed the time of about "
                "one layer of a step. [operating.md](operating.md), \"Nodes that hang\"."},
       // A node that has been silent for a minute has lost its connection, so it registers again.
       {.name = "forget_lost_after",
        .value = &registry->forget_lost_after_s,
        .range = {60, 1e9},
        .text =
            "seconds of silence after which a lost node is no longer listed and its metrics end",
        .more = "Set it lower if nodes come and go often under new names, as pods do."},
       {.name = "failover_wait",
        .value = &dispatcher->failover_wait_s,
        .range = {0, 86400},
        .text = "seconds that requests of a lost replica wait for another when none is ready",
        .more = "Raise it if a replica is restarted automatically and takes longer than this."},
       {.name = "max_queue",
        .value = &dispatcher->max_queue,
        .range = {1, 1 << 20},
        .text = "requests that may wait for a replica",
        .more = "One more is refused, or takes the place of another if its client has fewer "
                "waiting ([api.md](api.md) 4, \"Turns\")."},
       {.name = "max_queue_per_client",
        .value = &dispatcher->max_queue_per_client,
        .range = {0, 1 << 20},
        .text = "most waiting requests of one client (its key, or its address without one); 0 = "
                "max_queue"},
       {.name = "kv_cover",
        .value = &dispatcher->kv_cover,
        .range = {0, 1},
        .text =
            "share of recent requests for which the KV that is expected of them would have been "
            "enough",
        .more = "A larger one admits fewer requests at a time, a smaller one preempts more often "
                "([step.md](step.md), \"Who gets the KV\")."},
       {.name = "drain_timeout",
        .value = &options->coordinator.drain_timeout_s,
        .range = {0, 86400},
        .text = "seconds that running requests get after SIGTERM"}}};
}

void CheckTogether(const LaunchOptions& options, FlagFaults* faults) {
  const ApiLimits& limits = options.coordinator.dispatcher.limits;
  if (limits.default_timeout_s > limits.max_timeout_s) {
    faults->Add("default_timeout",
                absl::StrCat("must be at most --max_timeout (", limits.max_timeout_s, "), got ",
                             limits.default_timeout_s));
  }
  const std::vector<std::string>& names = options.coordinator.model_names;
  if (std::set<std::string>(names.begin(), names.end()).size() < names.size())
    faults->Add("served_model_name", "a name is given twice");
  const HttpOptions& http = options.coordinator.http;
  if (http.keep_alive_interval_s > 0 && http.keep_alive_interval_s < kLeastInterval_s) {
    faults->Add("keep_alive_interval", absl::StrCat("must be 0, or at least ", kLeastInterval_s,
                                                    ", got ", http.keep_alive_interval_s));
  }
  for (const std::string& origin : http.allowed_origins) {
    const std::string fault = CorsPolicy::Fault(origin);
    if (!fault.empty()) faults->Add("allowed_origins", fault);
  }
  faults->Add("listen", CheckListen(http.listen));
  if (!options.control_listen.empty()) {
    const absl::Status control = comm::CheckEndpoint(options.control_listen, /*listen=*/true);
    faults->Add("control_listen", control);
    if (control.ok() && !absl::StartsWith(options.control_listen, "tcp://"))
      faults->Add("control_listen", "nodes register over ZeroMQ, tcp://");
  }
  if (http.tls_cert_file.empty() != http.tls_key_file.empty()) {
    faults->Add(http.tls_cert_file.empty() ? "tls_cert_file" : "tls_key_file",
                "TLS needs both a certificate and its key");
  }
}

// Reads the files that the flags name, so that --check_config finds their faults.
void CheckFiles(const LaunchOptions& launch, FlagFaults* faults) {
  const CoordinatorOptions& options = launch.coordinator;
  if (!launch.chat_template.empty()) {
    faults->Add("chat_template",
                tokenizer::FindTemplate(launch.model, launch.chat_template).status());
  }
  const absl::Status keys = ApiKeys::Load(options.api_keys_file, options.admin_keys_file).status();
  if (!keys.ok())
    faults->Add(options.api_keys_file.empty() ? "admin_keys_file" : "api_keys_file",
                keys.message());
  const HttpOptions& http = options.http;
  if (http.tls_cert_file.empty() || http.tls_key_file.empty()) return;
  const absl::Status tls = LoadTls(http.tls_cert_file, http.tls_key_file).status();
  if (!tls.ok()) faults->Add("tls_cert_file", tls.message());
}

void Complete(LaunchOptions* options, FlagFaults* faults) {
  CoordinatorOptions& coordinator = options->coordinator;
  CheckTogether(*options, faults);
  CheckFiles(*options, faults);
  auto key = comm::ClusterKey::Load(options->cluster_key_file);
  faults->Add(key.status());
  if (key.ok()) options->channel.key = *std::move(key);
  coordinator.registry.tokenizer_dir = options->model;
  if (coordinator.model_names.empty())
    coordinator.model_names = {model_files::ModelName(options->model)};
  coordinator.dispatcher.limits.refuse_unknown_fields = options->unknown_fields == "refuse";
  if (options->generation_config == "auto") {
    auto defaults = SamplingDefaults::Load(options->model);
    faults->Add(defaults.status());
    if (defaults.ok()) coordinator.sampling_defaults = *std::move(defaults);
  }
  HttpOptions& http = coordinator.http;
  http.max_inflight_body_bytes = std::max(http.max_body_bytes, http.max_inflight_body_bytes);
}

}  // namespace

FlagTable CoordinatorFlagTable(LaunchOptions* options) {
  return {
      .program = "coppice-coordinator",
      .about = "Serves the HTTP API of a Coppice cluster and keeps its nodes.",
      .groups = {ModelGroup(options), HttpGroup(&options->coordinator),
                 KeysGroup(&options->coordinator), RequestGroup(options), ClusterGroup(options)},
      .section = "coordinator",
      .check = [options](FlagFaults* faults) { Complete(options, faults); }};
}

}  // namespace coppice::coordinator
