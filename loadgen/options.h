// The flags of coppice-loadgen (docs/flags.md) and the options that they give. Called by main, and
// by the program that writes docs/flags.md. option_rules checks what they mean together.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flag_table.h"
#include "loadgen/arrivals.h"
#include "loadgen/objectives.h"
#include "loadgen/servers.h"

namespace coppice::loadgen {

struct LoadgenOptions {
  Servers servers;
  EndpointPolicy endpoint_policy = EndpointPolicy::kRoundRobin;
  std::string endpoint = "/v1/completions";
  std::string model;              // "": the first of /v1/models
  std::string request_id_prefix;  // "" = no header X-Request-Id
  std::string dataset_name = "random", dataset_path;
  bool all_turns = false;  // spec_bench
  int num_prompts = 0;     // 0 = not given
  int input_len = 128, output_len = 128;
  bool text_form = false;  // prompts of a given length are text and not token ids
  uint64_t seed = 0;
  nlohmann::json body_fields = nlohmann::json::object();  // sampling flags, then --extra-body
  ArrivalProcess arrivals;                                // for an open loop without trace times
  bool self_timed = true;                                 // for traces
  double trace_speed = 1;
  double window_start_s = 0, window_s = 0;  // in the trace's time; window_s 0 = all
  int max_concurrency = 0;                  // 0 = no limit
  int num_warmups = 0;
  double warmup_s = 0;
  double benchmark_s = 0;  // 0 = until every prompt has been sent
  double grace_s = 30;     // infinite: until every request has ended
  double request_timeout_s = 600, ready_timeout_s = 0;
  double cancel_percent = 0, cancel_delay_s = 0;
  double max_failed_percent = 1, max_send_lag_ms = 10;
  Objectives objectives;
  bool save_result = false, save_detailed = false, save_texts = false;
  std::string result_dir = ".";
  std::string result_filename;        // "" = made from date, rate and model
  std::vector<std::string> metadata;  // K=V

  bool chat() const;
  bool trace() const;             // azure, burstgpt: rows with times and lengths
  bool sized() const;             // prompts are made to a length: random, traces
  bool trace_times() const;       // requests are sent at the times of the trace
  bool open_loop() const;         // arrivals have times of their own
  std::string endpoints() const;  // the base URLs, separated by spaces
};

// The values of the flags: most are options already, the others are texts that ReadOptions reads.
struct LoadgenFlags {
  LoadgenOptions options;
  std::string base_urls = "http://127.0.0.1:8000";  // separated by newlines or commas
  std::string endpoint_policy = "round_robin";
  std::string headers;  // lines of K=V
  std::string api_key_file;
  std::string turns = "first";
  std::string prompt_form = "ids";
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k, logprobs, beam_width, n;
  bool use_beam_search = false, ignore_eos = false;
  std::string method, extra_body;
  std::string ramp_up_strategy, trace_window, goodput;
  std::string metadata;  // lines of K=V
};

// Spelled with dashes. *flags must outlive the table, whose check completes flags->options.
FlagTable LoadgenFlagTable(LoadgenFlags* flags);
// From the flags and OPENAI_API_KEY, checked. InvalidArgument names the flag.
absl::StatusOr<LoadgenOptions> ReadOptions(const LoadgenFlags& flags);

}  // namespace coppice::loadgen
