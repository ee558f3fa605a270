// What a model is, in a few lines, before anything is loaded: --check of the worker. One thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/model_config.h"
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

// InvalidArgument: the model is a draft that takes the states of a target, so it cannot be one. A
// model that cannot be read is no error here.
absl::Status CheckTarget(const std::string& dir);

// FailedPrecondition: why the draft does not fit to the target, whose settings are `config`. Both
// are folders or files. Other errors: the draft cannot be read, or takes states that this target does
// not have.
absl::Status CheckDraft(const std::string& target, const model::ModelConfig& config,
                        const std::string& draft);

}  // namespace coppice::worker
