// The perplexity of a model on texts, with its weights in one type. One rank, on the CPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/perplexity/texts.h"

namespace coppice::perplexity {

struct ModelChoice {
  std::string dir;               // Hugging Face folder
  std::string type;              // auto, f32, bf16 (weights and KV), int8, int4 (weights)
  std::string kv_type = "auto";  // LoadOptions::kv_dtype
  std::string kernels = "best";  // BackendOptions::cpu_kernels
  int threads = 1;
};

struct TextScore {
  int64_t tokens = 0;         // scored
  double mean_nll = 0;        // nats of a token
  size_t weight_bytes = 0;    // in memory
  std::string kv_type;        // in memory, "BF16"
  std::string backend;        // Backend::description
  double perplexity() const;  // e^mean_nll
};

// Each window is scored by itself, in one pass. Its tokens must be those of the model.
absl::StatusOr<TextScore> ScoreTexts(const ModelChoice& choice, const std::vector<Window>& windows);

}  // namespace coppice::perplexity
