// The flags of coppice-loadgen, read and checked. Called by main. Dashes and underscores are equal
// in flag names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/program_help.h"
#include "loadgen/base_url.h"

namespace coppice::loadgen {

struct LoadgenOptions {
  std::string base_url_text;
  BaseUrl base_url;
  std::string endpoint, model;  // model "": the first of /v1/models
  std::string dataset_name, dataset_path;
  int num_prompts = 0, num_warmups = 0;
  int input_len = 0, output_len = 0;
  uint64_t seed = 0;
  nlohmann::json body_fields = nlohmann::json::object();  // sampling flags, then --extra-body
  double request_rate = 0, burstiness = 1;                // rate infinite: as soon as there is room
  int max_concurrency = 0;                                // 0 = no limit
  double request_timeout_s = 0, ready_timeout_s = 0;
  double max_failed_percent = 0, max_send_lag_ms = 0;
  bool save_result = false, save_detailed = false;
  std::string result_dir, result_filename;  // "" = made from date, rate and model
  std::vector<std::string> metadata;        // K=V

  bool chat() const;
};

// --base-url=x -> --base_url=x; values stay as they are.
std::vector<std::string> NormalizeFlagNames(const std::vector<std::string>& arguments);

// What --help says: every flag of options.cc, in groups, spelled with dashes.
ProgramUsage FlagUsage();
// From the flags. InvalidArgument names the flag.
absl::StatusOr<LoadgenOptions> ReadOptions();

}  // namespace coppice::loadgen
