#include "model_files/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "model_files/gguf_experts.h"
#include "model_files/gguf_rope.h"
#include "model_files/gguf_tokenizer.h"
#include "nlohmann/json.hpp"

namespace coppice::model_files {
namespace {

using Json = nlohmann::json;

// An architecture of GGUF, and what config.json calls it. One name may have a row without experts
// and one with them.
struct Architecture {
  const char* name;
  bool has_experts;
  const char* architecture;
  const char* model_type;
  absl::Status (*add)(const GgufFile& file, const GgufSizes& sizes, Json* config);
};

// Biases: a Llama has those of all matrices of attention, or of the MLP, or none.
absl::Status AddLlama(const GgufFile& file, const GgufSizes&, Json* config) {
  const auto has = [&](const char* name) {
    return file.FindTensor(absl::StrCat("blk.0.", name, ".bias")) != nullptr;
  };
  (*config)["hidden_act"] = "silu";
  (*config)["attention_bias"] =
      has("attn_q") || has("attn_k") || has("attn_v") || has("attn_output");
  (*config)["mlp_bias"] = has("ffn_gate") || has("ffn_up") || has("ffn_down");
  return absl::OkStatus();
}

absl::Status AddQwen(const GgufFile&, const GgufSizes&, Json* config) {
  (*config)["hidden_act"] = "silu";
  (*config)["use_sliding_window"] = false;  // the format has no window for it
  return absl::OkStatus();
}

// The intermediate size of an expert is that of an MLP.
absl::Status AddMixtral(const GgufFile& file, const GgufSizes& sizes, Json* config) {
  (*config)["hidden_act"] = "silu";
  (*config)["sliding_window"] = Json();  // the format has no window for it
  COPPICE_ASSIGN_OR_RETURN(const GgufExperts experts, ReadGgufExperts(file, "llama"));
  (*config)["num_local_experts"] = experts.count;
  (*config)["num_experts_per_tok"] = experts.chosen;
  return file
      .IntOr("llama.expert_feed_forward_length", sizes.intermediate, sizes.intermediate,
             sizes.intermediate)
      .status();
}

// The format has no layer without experts and divides the shares of the chosen ones by their sum.
absl::Status AddQwen3Moe(const GgufFile& file, const GgufSizes& sizes, Json* config) {
  COPPICE_RETURN_IF_ERROR(AddQwen(file, sizes, config));
  COPPICE_ASSIGN_OR_RETURN(const GgufExperts experts, ReadGgufExperts(file, "qwen3moe"));
  (*config)["num_experts"] = experts.count;
  (*config)["num_experts_per_tok"] = experts.chosen;
  (*config)["norm_topk_prob"] = true;
  const int64_t absent = std::max<int64_t>(1, sizes.intermediate / experts.chosen);
  COPPICE_ASSIGN_OR_RETURN(const int64_t size,
                           file.IntOr("qwen3moe.expert_feed_forward_length", 1, 1 << 22, absent));
  (*config)["moe_intermediate_size"] = size;
  return absl::OkStatus();
}

absl::Status AddPhi3(const GgufFile& file, const GgufSizes& sizes, Json* config) {
  (*config)["hidden_act"] = "silu";
  COPPICE_ASSIGN_OR_RETURN(const int64_t window,
                           file.IntOr("phi3.attention.sliding_window", 0, int64_t{1} << 40, 0));
  (*config)["sliding_window"] = window > 0 && window < sizes.context ? Json(window) : Json();
  if (sizes.rope_dims != sizes.head_dim) {
    (*config)["partial_rotary_factor"] =
        static_cast<double>(sizes.rope_dims) / static_cast<double>(sizes.head_dim);
  }
  return absl::OkStatus();
}

// Layers slide but for every `period`th.
Json LayerTypes(int64_t layers, int64_t period) {
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i)
    types.push_back((i + 1) % period == 0 ? "full_attention" : "sliding_attention");
  return types;
}

// large: the number of layers of the one size whose scores are not scaled by its head. The format
// does not say how they are scaled.
absl::Status AddGemma(const GgufFile& file, const GgufSizes& sizes, const std::string& name,
                      int64_t period, int64_t large, Json* config) {
  (*config)["hidden_activation"] = "gelu_pytorch_tanh";
  (*config)["torch_dtype"] = "bfloat16";  // that of the original: the embedding's factor is rounded
  (*config)["query_pre_attn_scalar"] =
      sizes.layers == large ? sizes.hidden / sizes.heads : sizes.head_dim;
  COPPICE_ASSIGN_OR_RETURN(
      const int64_t window,
      file.Int(absl::StrCat(name, ".attention.sliding_window"), 1, int64_t{1} << 40));
  (*config)["sliding_window"] = window;
  (*config)["layer_types"] = LayerTypes(sizes.layers, period);
  return absl::OkStatus();
}

absl::Status AddGemma2(const GgufFile& file, const GgufSizes& sizes, Json* config) {
  for (const auto& [key, absent] :
       {std::pair("attn_logit_softcapping", 50.0), {"final_logit_softcapping", 30.0}}) {
    COPPICE_ASSIGN_OR_RETURN(const double cap,
                             file.NumberOr(absl::StrCat("gemma2.", key), 1e-3, 1e6, absent));
    (*config)[key] = cap;
  }
  return AddGemma(file, sizes, "gemma2", /*period=*/2, /*large=*/46, config);
}

absl::Status AddGemma3(const GgufFile& file, const GgufSizes& sizes, Json* config) {
  COPPICE_ASSIGN_OR_RETURN(const double local,
                           file.NumberOr("gemma3.rope.freq_base_swa", 1, 1e12, 10000.0));
  (*config)["rope_local_base_freq"] = local;
  return AddGemma(file, sizes, "gemma3", /*period=*/6, /*large=*/62, config);
}

constexpr Architecture kArchitectures[] = {
    {"llama", false, "LlamaForCausalLM", "llama", AddLlama},
    {"llama", true, "MixtralForCausalLM", "mixtral", AddMixtral},
    {"qwen2", false, "Qwen2ForCausalLM", "qwen2", AddQwen},
    {"qwen3", false, "Qwen3ForCausalLM", "qwen3", AddQwen},
    {"qwen3moe", true, "Qwen3MoeForCausalLM", "qwen3_moe", AddQwen3Moe},
    {"gemma2", false, "Gemma2ForCausalLM", "gemma2", AddGemma2},
    {"gemma3", false, "Gemma3ForCausalLM", "gemma3_text", AddGemma3},
    {"phi3", false, "Phi3ForCausalLM", "phi3", AddPhi3},
};

absl::StatusOr<const Architecture*> FindArchitecture(const GgufFile& file) {
  COPPICE_ASSIGN_OR_RETURN(const std::string name, file.Text("general.architecture"));
  const std::string key = absl::StrCat(name, ".expert_count");
  bool is_served = false;
  int64_t experts = 0;
  std::vector<absl::string_view> served;
  for (const Architecture& architecture : kArchitectures) {
    if (served.empty() || served.back() != architecture.name) served.push_back(architecture.name);
    if (name != architecture.name) continue;
    is_served = true;
    COPPICE_ASSIGN_OR_RETURN(experts, file.IntOr(key, 0, kMostExperts, 0));
    if (architecture.has_experts == (experts > 0)) return &architecture;
  }
  if (is_served) {
    return file.KeyError(key, experts > 0 ? absl::StrCat(experts,
                                                         ": this architecture is served without "
                                                         "experts")
                                          : "missing or 0, expected the number of experts");
  }
  return file.KeyError("general.architecture", absl::StrCat(ShownName(name), " is not served yet (",
                                                            absl::StrJoin(served, ", "), " are)"));
}

absl::StatusOr<GgufSizes> ReadSizes(const GgufFile& file, const std::string& name) {
  const auto key = [&](const char* field) { return absl::StrCat(name, ".", field); };
  constexpr int64_t kMost = 1 << 24;
  GgufSizes sizes;
  COPPICE_ASSIGN_OR_RETURN(sizes.layers, file.Int(key("block_count"), 1, 4096));
  COPPICE_ASSIGN_OR_RETURN(sizes.hidden, file.Int(key("embedding_length"), 1, 1 << 20));
  COPPICE_ASSIGN_OR_RETURN(sizes.intermediate, file.Int(key("feed_forward_length"), 1, 1 << 22));
  COPPICE_ASSIGN_OR_RETURN(sizes.context, file.Int(key("context_length"), 1, kMost));
  const std::string heads = key("attention.head_count");
  COPPICE_ASSIGN_OR_RETURN(sizes.heads, file.Int(heads, 1, 1 << 16));
  COPPICE_ASSIGN_OR_RETURN(sizes.kv_heads,
                           file.IntOr(key("attention.head_count_kv"), 1, 1 << 16, sizes.heads));
  const std::string head = key("attention.key_length");
  if (sizes.heads % sizes.kv_heads != 0 || (!file.Has(head) && sizes.hidden % sizes.heads != 0)) {
    return file.KeyError(
        heads, absl::StrCat(sizes.heads, " heads, ", sizes.kv_heads, " KV heads and a width of ",
                            sizes.hidden, " do not fit together"));
  }
  COPPICE_ASSIGN_OR_RETURN(sizes.head_dim, file.IntOr(head, 1, 4096, sizes.hidden / sizes.heads));
  COPPICE_RETURN_IF_ERROR(
      file.IntOr(key("attention.value_length"), sizes.head_dim, sizes.head_dim, sizes.head_dim)
          .status());
  // Only phi3 can leave a part of a head without rotation.
  const int64_t least = name == "phi3" ? 1 : sizes.head_dim;
  COPPICE_ASSIGN_OR_RETURN(sizes.rope_dims, file.IntOr(key("rope.dimension_count"), least,
                                                       sizes.head_dim, sizes.head_dim));
  return sizes;
}

// The embedding has a row for each token, and may have more.
absl::StatusOr<int64_t> VocabSize(const GgufFile& file, const GgufSizes& sizes) {
  const std::string tokens_key = "tokenizer.ggml.tokens";
  COPPICE_ASSIGN_OR_RETURN(const auto tokens, file.Texts(tokens_key));
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) return file.Error("tensor token_embd.weight: missing");
  const std::vector<int64_t>& shape = embedding->shape;
  if (shape.size() != 2 || shape[1] != sizes.hidden ||
      shape[0] < static_cast<int64_t>(tokens.size())) {
    return file.Error(absl::StrCat("tensor token_embd.weight: [", absl::StrJoin(shape, ", "),
                                   "], expected [", tokens.size(), ", ", sizes.hidden,
                                   "] or more rows, one for each token"));
  }
  return shape[0];
}

std::string DTypeField(const GgufFile& file) {
  const absl::string_view type = file.FindTensor("token_embd.weight")->type->name;
  return type == "F32" ? "float32" : type == "F16" ? "float16" : "bfloat16";
}

}  // namespace

absl::StatusOr<std::string> GgufArchitecture(const GgufFile& file) {
  COPPICE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(file));
  return std::string(architecture->name);
}

absl::StatusOr<Json> GgufConfig(const GgufFile& file) {
  COPPICE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(file));
  const std::string name = architecture->name;
  COPPICE_ASSIGN_OR_RETURN(const GgufSizes sizes, ReadSizes(file, name));
  COPPICE_ASSIGN_OR_RETURN(const int64_t vocab, VocabSize(file, sizes));
  COPPICE_ASSIGN_OR_RETURN(
      const double epsilon,
      file.Number(absl::StrCat(name, ".attention.layer_norm_rms_epsilon"), 1e-12, 1));
  Json config = {
      {"architectures", Json::array({architecture->architecture})},
      {"model_type", architecture->model_type},
      {"vocab_size", vocab},
      {"hidden_size", sizes.hidden},
      {"intermediate_size", sizes.intermediate},
      {"num_hidden_layers", sizes.layers},
      {"num_attention_heads", sizes.heads},
      {"num_key_value_heads", sizes.kv_heads},
      {"head_dim", sizes.head_dim},
      {"max_position_embeddings", sizes.context},
      {"rms_norm_eps", epsilon},
      {"tie_word_embeddings", file.FindTensor("output.weight") == nullptr},
      {"torch_dtype", DTypeField(file)},
  };
  COPPICE_RETURN_IF_ERROR(AddGgufRope(file, name, sizes, &config));
  COPPICE_RETURN_IF_ERROR(architecture->add(file, sizes, &config));
  COPPICE_RETURN_IF_ERROR(AddSpecialIds(file, &config));
  return config;
}

}  // namespace coppice::model_files
