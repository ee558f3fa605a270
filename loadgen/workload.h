// What a run sends and when: the prompts of its dataset and their arrival times, from the options
// alone. Called by main before the run.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/options.h"
#include "loadgen/prompt.h"
#include "loadgen/server_info.h"

namespace coppice::loadgen {

struct Workload {
  std::vector<Prompt> prompts;
  int64_t conversations = 0;       // to send, or LoadPlan::kEndless
  std::vector<double> arrivals_s;  // arrival times of an open loop
  int dropped_rows = 0;            // trace rows that are longer than the model's context
  int empty_rows = 0;              // trace rows without tokens
};

// The rows of the dataset; InvalidArgument or NotFound names the file. Traces keep all rows.
absl::StatusOr<std::vector<Prompt>> ReadPrompts(const LoadgenOptions& options);

// The rows that this model can serve, as many as the options ask for, and when each is sent.
// InvalidArgument if none is left.
absl::StatusOr<Workload> MakeWorkload(const LoadgenOptions& options, std::vector<Prompt> prompts,
                                      const ModelInfo& model);

// Replaces lengths by texts of as many tokens, which the first server's /tokenize counts.
absl::Status FitTexts(const LoadgenOptions& options, const ModelInfo& model,
                      std::vector<Prompt>* prompts);

}  // namespace coppice::loadgen
