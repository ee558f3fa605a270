// The flags of coppice-loadgen. Called by main. option_rules checks what they mean together.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/program_help.h"
#include "loadgen/arrivals.h"
#include "loadgen/objectives.h"
#include "loadgen/servers.h"

namespace coppice::loadgen {

struct LoadgenOptions {
  Servers servers;
  EndpointPolicy endpoint_policy = EndpointPolicy::kRoundRobin;
  std::string endpoint, model;    // model "": the first of /v1/models
  std::string request_id_prefix;  // "" = no header X-Request-Id
  std::string dataset_name, dataset_path;
  bool all_turns = false;  // spec_bench
  int num_prompts = 0;     // 0 = not given
  int input_len = 0, output_len = 0;
  bool text_form = false;  // prompts of a given length are text and not token ids
  uint64_t seed = 0;
  nlohmann::json body_fields = nlohmann::json::object();  // sampling flags, then --extra-body
  ArrivalProcess arrivals;                                // of an open loop without trace times
  bool self_timed = true;                                 // traces
  double trace_speed = 1;
  double window_start_s = 0, window_s = 0;  // of the trace's time; window_s 0 = all
  int max_concurrency = 0;                  // 0 = no limit
  int num_warmups = 0;
  double warmup_s = 0;
  double benchmark_s = 0;  // 0 = until every prompt has been sent
  double grace_s = 0;      // infinite: until every request has ended
  double request_timeout_s = 0, ready_timeout_s = 0;
  double cancel_percent = 0, cancel_delay_s = 0;
  double max_failed_percent = 0, max_send_lag_ms = 0;
  Objectives objectives;
  bool save_result = false, save_detailed = false, save_texts = false;
  std::string result_dir, result_filename;  // "" = made from date, rate and model
  std::vector<std::string> metadata;        // K=V

  bool chat() const;
  bool trace() const;             // azure, burstgpt: rows with times and lengths
  bool sized() const;             // prompts are made to a length: random, traces
  bool trace_times() const;       // requests are sent at the times of the trace
  bool open_loop() const;         // arrivals have times of their own
  std::string endpoints() const;  // the base URLs, separated by spaces
};

// What --help says: every flag of options.cc, in groups, spelled with dashes.
ProgramUsage FlagUsage();
// From the flags and OPENAI_API_KEY, checked. InvalidArgument names the flag.
absl::StatusOr<LoadgenOptions> ReadOptions();

}  // namespace coppice::loadgen
