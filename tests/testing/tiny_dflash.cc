#include "tests/testing/tiny_dflash.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace coppice::test {
namespace {

nlohmann::json MakeConfig(const TinyLlama& target, const TinyDFlashOptions& o) {
  nlohmann::json config = nlohmann::json::parse(target.config);
  config["model_type"] = "qwen3";
  config["num_target_layers"] = config["num_hidden_layers"];
  config["num_hidden_layers"] = o.layers;
  config["num_attention_heads"] = o.heads;
  config["num_key_value_heads"] = o.kv_heads;
  config["head_dim"] = o.head_dim;
  config["layer_types"] = std::vector<std::string>(o.layers, "full_attention");
  config["use_sliding_window"] = false;
  config["sliding_window"] = nullptr;
  config["tie_word_embeddings"] = !o.dspark;
  config["torch_dtype"] = o.dtype == "F32" ? "float32" : "bfloat16";
  config["block_size"] = o.block;
  if (o.dspark) {
    config["architectures"] = {"Qwen3DSparkModel"};
    config["mask_token_id"] = o.mask;
    config["target_layer_ids"] = o.target_layers;
    config["enable_confidence_head"] = true;
  } else {
    config["architectures"] = {"DFlashDraftModel"};
    config["auto_map"] = {{"AutoModel", "dflash.DFlashDraftModel"}};
    config["dflash_config"] = {{"mask_token_id", o.mask}, {"target_layer_ids", o.target_layers}};
  }
  config["markov_rank"] = o.markov_rank;
  if (o.markov_rank > 0) config["markov_head_type"] = "vanilla";
  return config;
}

}  // namespace

TinyLlama MakeTinyDFlash(const TinyLlama& target, const TinyDFlashOptions& o) {
  const nlohmann::json config = MakeConfig(target, o);
  TinyLlama model{target.options, config.dump(), {}};
  const int64_t hidden = config["hidden_size"], vocab = config["vocab_size"];
  const int64_t f = config["intermediate_size"];
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, double mean,
                       double deviation) {
    model.tensors[name] =
        tiny_llama::RandomTensor(name, std::move(shape), o.dtype, mean, deviation, o.seed);
  };
  const auto linear = [&](const std::string& name, int64_t rows, int64_t columns) {
    add(name + ".weight", {rows, columns}, 0, 1.5 / std::sqrt(static_cast<double>(columns)));
  };
  linear("fc", hidden, hidden * static_cast<int64_t>(o.target_layers.size()));
  add("hidden_norm.weight", {hidden}, 1, 0.2);
  for (int layer = 0; layer < o.layers; ++layer) {
    const std::string prefix = absl::StrCat("layers.", layer, ".");
    add(prefix + "input_layernorm.weight", {hidden}, 1, 0.2);
    linear(prefix + "self_attn.q_proj", o.heads * o.head_dim, hidden);
    linear(prefix + "self_attn.k_proj", o.kv_heads * o.head_dim, hidden);
    linear(prefix + "self_attn.v_proj", o.kv_heads * o.head_dim, hidden);
    linear(prefix + "self_attn.o_proj", hidden, o.heads * o.head_dim);
    add(prefix + "self_attn.q_norm.weight", {o.head_dim}, 1, 0.2);
    add(prefix + "self_attn.k_norm.weight", {o.head_dim}, 1, 0.2);
    add(prefix + "post_attention_layernorm.weight", {hidden}, 1, 0.2);
    linear(prefix + "mlp.gate_proj", f, hidden);
    linear(prefix + "mlp.up_proj", f, hidden);
    linear(prefix + "mlp.down_proj", hidden, f);
  }
  add("norm.weight", {hidden}, 1, 0.2);
  if (o.owns_ends) {
    add("embed_tokens.weight", {vocab, hidden}, 0, 1);
    linear("lm_head", vocab, hidden);
  }
  if (o.markov_rank > 0) {
    for (const std::string tensor : {"markov_w1", "markov_w2"}) {
      const std::string name = absl::StrCat("markov_head.", tensor, ".weight");
      model.tensors[name] =
          tiny_llama::RandomTensor(name, {vocab, o.markov_rank}, "BF16", 0, 1, o.seed);
    }
  }
  if (o.dspark) {
    add("confidence_head.proj.weight", {1, hidden + o.markov_rank}, 0, 1);
    add("confidence_head.proj.bias", {1}, 0, 1);
  }
  return model;
}

}  // namespace coppice::test
