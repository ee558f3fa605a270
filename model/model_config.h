// A decoder-only transformer as data, read from config.json of a Hugging Face folder. The supported
// families differ only in these values. A family with other parts is refused by name.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"
#include "kernels/backend.h"

namespace coppice::model {

struct ModelConfig {
  std::string model_type;  // "llama"
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int max_positions = 0;
  bool attention_bias = false;  // bias on q, k, v
  bool output_bias = false;     // bias on the attention output
  bool mlp_bias = false;
  bool tied_head = false;
  // Rows of a draft vocabulary, which has only the ids that tensor d2t lists (draft_vocabulary.h);
  // the logits of the others are -infinity. 0: the head has all.
  int draft_vocab_size = 0;
  float norm_epsilon = 1e-5f;
  kernels::RopeConfig rope;
  kernels::DType checkpoint_dtype = kernels::DType::kF32;  // torch_dtype
  std::vector<TokenId> eos_ids;                            // config.json and generation_config.json
};

// Reads config.json of a folder or GGUF file (and generation_config.json for eos ids). Errors name
// the file, the field and what was expected.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& dir);

}  // namespace coppice::model
