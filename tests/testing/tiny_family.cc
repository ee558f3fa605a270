#include "tests/testing/tiny_family.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "nlohmann/json.hpp"

namespace coppice::test {
namespace {

using Json = nlohmann::json;

constexpr int kHidden = 32, kHeads = 4, kKvHeads = 2, kIntermediate = 48;

// Its name in config.json.
std::string ModelType(const std::string& architecture) {
  if (architecture == "Gemma3ForCausalLM") return "gemma3_text";
  if (architecture == "Qwen3MoeForCausalLM") return "qwen3_moe";
  if (architecture == "GPTNeoXForCausalLM") return "gpt_neox";
  std::string type = architecture.substr(0, architecture.find("For"));
  for (char& letter : type) letter = static_cast<char>(std::tolower(letter));
  return type;
}

// What config.json of the family says beside the sizes.
struct Variant {
  const char* name;
  const char* architecture;
  int head_dim;
  const char* fields;  // JSON
};
constexpr Variant kVariants[] = {
    {"llama3", "LlamaForCausalLM", 8,
     R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 32}})"},
    {"llama_yarn", "LlamaForCausalLM", 16,
     R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
         "original_max_position_embeddings": 64}})"},
    {"llama_yarn_mscale", "LlamaForCausalLM", 16,
     R"({"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "mscale": 1.5, "mscale_all_dim": 0.5,
         "beta_fast": 16, "beta_slow": 2, "original_max_position_embeddings": 32}})"},
    {"mistral", "MistralForCausalLM", 8, R"({"sliding_window": 11})"},
    {"mixtral", "MixtralForCausalLM", 8,
     R"({"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": null,
         "rope_theta": 1000000.0})"},
    {"qwen2", "Qwen2ForCausalLM", 8, R"({"use_sliding_window": false, "sliding_window": 8})"},
    {"qwen2_window", "Qwen2ForCausalLM", 8,
     R"({"use_sliding_window": true, "sliding_window": 20, "max_window_layers": 2})"},
    {"qwen3", "Qwen3ForCausalLM", 16,
     R"({"rope_theta": 1000000, "rms_norm_eps": 1e-6, "sliding_window": null})"},
    {"qwen3_bias", "Qwen3ForCausalLM", 16, R"({"attention_bias": true})"},
    {"qwen3_moe", "Qwen3MoeForCausalLM", 16,
     R"({"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
         "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []})"},
    {"qwen3_moe_dense_layers", "Qwen3MoeForCausalLM", 16,
     R"({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
         "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": [1]})"},
    {"granite", "GraniteForCausalLM", 8,
     R"({"embedding_multiplier": 12.0, "attention_multiplier": 0.25, "residual_multiplier": 0.22,
         "logits_scaling": 8.0, "tie_word_embeddings": true})"},
    {"gemma2", "Gemma2ForCausalLM", 16,
     R"({"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24,
         "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "sliding_window": 9,
         "rms_norm_eps": 1e-6, "tie_word_embeddings": true})"},
    {"gemma3", "Gemma3ForCausalLM", 16,
     R"({"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 16,
         "attn_logit_softcapping": null, "final_logit_softcapping": null, "sliding_window": 13,
         "sliding_window_pattern": 3, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
         "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rms_norm_eps": 1e-6,
         "tie_word_embeddings": true})"},
    {"opt", "OPTForCausalLM", 0,
     R"({"activation_function": "relu", "do_layer_norm_before": true, "ffn_dim": 48,
         "word_embed_proj_dim": 32, "_remove_final_layer_norm": false})"},
    {"opt_350m", "OPTForCausalLM", 0,
     R"({"activation_function": "relu", "do_layer_norm_before": false, "ffn_dim": 48,
         "word_embed_proj_dim": 20, "_remove_final_layer_norm": false})"},
    {"phi3", "Phi3ForCausalLM", 0, R"({"sliding_window": 15, "rope_scaling": null})"},
    {"phi3_long", "Phi3ForCausalLM", 0,
     R"({"original_max_position_embeddings": 64, "rope_scaling": {"type": "longrope",
         "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 2.5, 4.0, 8.0]}})"},
    {"phi4_mini", "Phi3ForCausalLM", 0,
     R"({"partial_rotary_factor": 0.75, "tie_word_embeddings": true,
         "original_max_position_embeddings": 256, "rope_scaling": {"type": "longrope",
         "short_factor": [1.0, 1.25, 1.5], "long_factor": [2.0, 3.0, 4.0]}})"},
    {"olmo2", "Olmo2ForCausalLM", 8, R"({"rope_theta": 500000})"},
    {"gpt_neox", "GPTNeoXForCausalLM", 0,
     R"({"rotary_pct": 0.5, "rotary_emb_base": 10000, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
         "intermediate_size": 48, "use_parallel_residual": true})"},
    {"gpt_neox_sequential", "GPTNeoXForCausalLM", 0,
     R"({"rotary_pct": 1.0, "rotary_emb_base": 5000, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
         "intermediate_size": 48, "use_parallel_residual": false})"},
    {"smollm3", "SmolLM3ForCausalLM", 8,
     R"({"no_rope_layers": [1, 0, 1, 1, 0, 1, 1, 1], "rope_theta": 5000000.0,
         "tie_word_embeddings": true})"},
};

const Variant& Find(const std::string& name) {
  for (const Variant& variant : kVariants) {
    if (name == variant.name) return variant;
  }
  COPPICE_CHECK_MSG(false, absl::StrCat("no tiny family ", name));
  return kVariants[0];
}

Json ConfigOf(const Variant& variant, const TinyFamilyOptions& options) {
  Json config = {{"architectures", {variant.architecture}},
                 {"model_type", ModelType(variant.architecture)},
                 {"hidden_size", kHidden},
                 {"num_hidden_layers", options.layers},
                 {"num_attention_heads", kHeads},
                 {"vocab_size", options.vocab},
                 {"max_position_embeddings", 256},
                 {"pad_token_id", 0},
                 {"bos_token_id", 1},
                 {"eos_token_id", 2},
                 {"torch_dtype", options.dtype == "F32"   ? "float32"
                                 : options.dtype == "F16" ? "float16"
                                                          : "bfloat16"}};
  const std::string architecture = variant.architecture;
  if (architecture != "OPTForCausalLM" && architecture != "GPTNeoXForCausalLM") {
    config["num_key_value_heads"] = kKvHeads;
    config["intermediate_size"] = kIntermediate;
    config["rms_norm_eps"] = 1e-5;
  }
  if (variant.head_dim != 0) config["head_dim"] = variant.head_dim;
  const Json fields = Json::parse(variant.fields);
  config.update(fields);
  if (config.contains("no_rope_layers")) {
    Json& list = config["no_rope_layers"];
    list.erase(list.begin() + options.layers, list.end());
  }
  return config;
}

// Adds the tensors of a family, as Transformers names them.
class Tensors {
 public:
  Tensors(const TinyFamilyOptions& options, TinyLlama* model)
      : options_(options), model_(model), config_(Json::parse(model->config)) {
    architecture_ = config_["architectures"][0];
    head_dim_ = config_.value("head_dim", kHidden / kHeads);
  }

  void Add() {
    if (architecture_ == "OPTForCausalLM") return AddOpt();
    if (architecture_ == "GPTNeoXForCausalLM") return AddGptNeoX();
    Tensor("model.embed_tokens.weight", {options_.vocab, kHidden}, 0, 1);
    for (int layer = 0; layer < options_.layers; ++layer)
      AddLayer(layer, absl::StrCat("model.layers.", layer, "."));
    Norm("model.norm", kHidden);
    if (!config_.value("tie_word_embeddings", false))
      Linear("lm_head", options_.vocab, kHidden, false);
  }

 private:
  void Tensor(const std::string& name, std::vector<int64_t> shape, double mean, double deviation) {
    model_->tensors[name] = tiny_llama::RandomTensor(name, std::move(shape), options_.dtype, mean,
                                                     deviation, options_.seed);
  }
  void Linear(const std::string& name, int64_t rows, int64_t columns, bool bias) {
    Tensor(name + ".weight", {rows, columns}, 0, 1.5 / std::sqrt(static_cast<double>(columns)));
    if (bias) Tensor(name + ".bias", {rows}, 0, 0.5);
  }
  bool Gemma() const { return architecture_.rfind("Gemma", 0) == 0; }
  // Gemma's gains are stored less 1.
  void Norm(const std::string& name, int64_t size, bool bias = false) {
    Tensor(name + ".weight", {size}, Gemma() ? 0 : 1, 0.2);
    if (bias) Tensor(name + ".bias", {size}, 0, 0.3);
  }

  void AddLayer(int layer, const std::string& prefix) {
    const bool bias = config_.value("attention_bias", false);
    const bool qkv_bias = bias || architecture_ == "Qwen2ForCausalLM";
    const int64_t q = kHeads * head_dim_, kv = kKvHeads * head_dim_;
    const bool olmo = architecture_ == "Olmo2ForCausalLM";
    if (!olmo) Norm(prefix + "input_layernorm", kHidden);
    Norm(prefix + "post_attention_layernorm", kHidden);
    if (Gemma()) Norm(prefix + "pre_feedforward_layernorm", kHidden);
    if (Gemma() || olmo) Norm(prefix + "post_feedforward_layernorm", kHidden);
    if (olmo) {
      Norm(prefix + "self_attn.q_norm", q);
      Norm(prefix + "self_attn.k_norm", kv);
    }
    if (architecture_.rfind("Qwen3", 0) == 0 || architecture_ == "Gemma3ForCausalLM") {
      Norm(prefix + "self_attn.q_norm", head_dim_);
      Norm(prefix + "self_attn.k_norm", head_dim_);
    }
    Linear(prefix + "self_attn.o_proj", kHidden, q, bias);
    if (architecture_ != "MixtralForCausalLM" && !HasExperts(layer))
      Linear(prefix + "mlp.down_proj", kHidden, kIntermediate, false);
    if (architecture_ == "Phi3ForCausalLM") {
      Linear(prefix + "self_attn.qkv_proj", q + 2 * kv, kHidden, false);
      Linear(prefix + "mlp.gate_up_proj", 2 * kIntermediate, kHidden, false);
      return;
    }
    Linear(prefix + "self_attn.q_proj", q, kHidden, qkv_bias);
    Linear(prefix + "self_attn.k_proj", kv, kHidden, qkv_bias);
    Linear(prefix + "self_attn.v_proj", kv, kHidden, qkv_bias);
    if (architecture_ == "MixtralForCausalLM") {
      AddExperts(prefix + "block_sparse_moe.", config_["num_local_experts"], kIntermediate,
                 {"w1", "w3", "w2"});
    } else if (HasExperts(layer)) {
      AddExperts(prefix + "mlp.", config_["num_experts"], config_["moe_intermediate_size"],
                 {"gate_proj", "up_proj", "down_proj"});
    } else {
      Linear(prefix + "mlp.gate_proj", kIntermediate, kHidden, false);
      Linear(prefix + "mlp.up_proj", kIntermediate, kHidden, false);
    }
  }

  bool HasExperts(int layer) const {
    if (architecture_ != "Qwen3MoeForCausalLM") return false;
    const Json& dense = config_["mlp_only_layers"];
    return std::find(dense.begin(), dense.end(), layer) == dense.end();
  }

  // names: of gate, up and down.
  void AddExperts(const std::string& prefix, int count, int64_t size,
                  const std::vector<std::string>& names) {
    Linear(prefix + "gate", count, kHidden, false);
    for (int expert = 0; expert < count; ++expert) {
      const std::string one = absl::StrCat(prefix, "experts.", expert, ".");
      Linear(one + names[0], size, kHidden, false);
      Linear(one + names[1], size, kHidden, false);
      Linear(one + names[2], kHidden, size, false);
    }
  }

  void AddGptNeoX() {
    Tensor("gpt_neox.embed_in.weight", {options_.vocab, kHidden}, 0, 1);
    for (int layer = 0; layer < options_.layers; ++layer) {
      const std::string prefix = absl::StrCat("gpt_neox.layers.", layer, ".");
      Norm(prefix + "input_layernorm", kHidden, true);
      Norm(prefix + "post_attention_layernorm", kHidden, true);
      Linear(prefix + "attention.query_key_value", 3 * kHidden, kHidden, true);
      Linear(prefix + "attention.dense", kHidden, kHidden, true);
      Linear(prefix + "mlp.dense_h_to_4h", kIntermediate, kHidden, true);
      Linear(prefix + "mlp.dense_4h_to_h", kHidden, kIntermediate, true);
    }
    Norm("gpt_neox.final_layer_norm", kHidden, true);
    Linear("embed_out", options_.vocab, kHidden, false);
  }

  void AddOpt() {
    const int64_t narrow = config_["word_embed_proj_dim"];
    const bool before = config_["do_layer_norm_before"];
    Tensor("model.decoder.embed_tokens.weight", {options_.vocab, narrow}, 0, 1);
    Tensor("model.decoder.embed_positions.weight", {256 + 2, kHidden}, 0, 0.5);
    if (narrow != kHidden) {
      Linear("model.decoder.project_in", kHidden, narrow, false);
      Linear("model.decoder.project_out", narrow, kHidden, false);
    }
    for (int layer = 0; layer < options_.layers; ++layer) {
      const std::string prefix = absl::StrCat("model.decoder.layers.", layer, ".");
      Norm(prefix + "self_attn_layer_norm", kHidden, true);
      Norm(prefix + "final_layer_norm", kHidden, true);
      for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
        Linear(prefix + "self_attn." + name, kHidden, kHidden, true);
      Linear(prefix + "fc1", kIntermediate, kHidden, true);
      Linear(prefix + "fc2", kHidden, kIntermediate, true);
    }
    if (before) Norm("model.decoder.final_layer_norm", kHidden, true);
  }

  const TinyFamilyOptions& options_;
  TinyLlama* model_;
  const Json config_;
  std::string architecture_;
  int64_t head_dim_ = 0;
};

}  // namespace

const std::vector<std::string>& TinyFamilies() {
  static const auto* const names = [] {
    auto* list = new std::vector<std::string>();
    for (const Variant& variant : kVariants) list->push_back(variant.name);
    return list;
  }();
  return *names;
}

TinyLlama MakeTinyFamily(const std::string& name, const TinyFamilyOptions& options) {
  const Variant& variant = Find(name);
  TinyLlama model;
  model.options.vocab = options.vocab;
  model.options.dtype = options.dtype;
  model.options.layers = options.layers;
  model.options.architecture = variant.architecture;
  model.config = ConfigOf(variant, options).dump();
  Tensors(options, &model).Add();
  return model;
}

}  // namespace coppice::test
