// What a model is, in a few lines, before anything is loaded: --check of the worker. One thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/model_runner.h"

namespace coppice::worker {

// What the memory of the fourth line is for.
struct CheckedUse {
  int tokens = 4096;  // of a sequence
  int beams = 4;
  std::string draft;  // folder or file of a draft; "": none
};

// Lines of family and sizes, of weights, tokenizer and chat template, memory, and the draft. The
// error is that of loading the model, or why the draft does not fit to it.
absl::StatusOr<std::string> CheckModel(const model::ModelRunnerOptions& options, int ranks,
                                       const CheckedUse& use);

}  // namespace coppice::worker
