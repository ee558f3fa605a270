// Two Hugging Face folders as a pair of the laboratory. Prompts come from a file; the production
// classes decode in one process (local_replica.h). Thread-compatible.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lab/experiments/model_pair.h"

namespace coppice::lab {

struct ReplicaPairOptions {
  std::string target_dir, draft_dir;
  std::string prompts;  // JSON lines, each with "prompt": a text or a list of token ids
  int64_t kv_bytes = int64_t{256} << 20;
  int threads = 1;
  int max_tokens = 0;  // longest continuation; prompts that leave no room for it are refused
  bool ignore_eos = false;
};

// Errors name the folder, or the file and the line.
absl::StatusOr<std::unique_ptr<ModelPair>> LoadReplicaPair(const ReplicaPairOptions& options);

}  // namespace coppice::lab
