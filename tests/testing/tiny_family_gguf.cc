#include "tests/testing/tiny_family_gguf.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "tests/testing/tiny_gguf.h"

namespace coppice::test {
namespace {

using nlohmann::json;

// The architecture that a file names, by that of the folder.
std::string FileArchitecture(const std::string& architecture) {
  static const std::map<std::string, std::string> kNames = {
      {"MixtralForCausalLM", "llama"},     {"Qwen3ForCausalLM", "qwen3"},
      {"Qwen3MoeForCausalLM", "qwen3moe"}, {"Gemma2ForCausalLM", "gemma2"},
      {"Gemma3ForCausalLM", "gemma3"},     {"Phi3ForCausalLM", "phi3"}};
  return kNames.at(architecture);
}

std::string FileName(const std::string& architecture, std::string name) {
  if (absl::StartsWith(architecture, "gemma")) {
    name = absl::StrReplaceAll(name, {{"post_attention_layernorm", "post_attention_norm"},
                                      {"pre_feedforward_layernorm", "ffn_norm"},
                                      {"post_feedforward_layernorm", "post_ffw_norm"}});
  }
  name = absl::StrReplaceAll(name, {{"self_attn.q_norm", "attn_q_norm"},
                                    {"self_attn.k_norm", "attn_k_norm"},
                                    {"self_attn.qkv_proj", "attn_qkv"},
                                    {"mlp.gate_up_proj", "ffn_up"},
                                    {"mlp.gate.", "ffn_gate_inp."},
                                    {"block_sparse_moe.gate.", "ffn_gate_inp."}});
  return GgufNameOf(name);
}

void AddMetadata(const std::string& name, const json& config, GgufBuilder* file) {
  const auto key = [&](const char* field) { return absl::StrCat(name, ".", field); };
  const int hidden = config["hidden_size"], heads = config["num_attention_heads"];
  const int head_dim = config.value("head_dim", hidden / heads);
  file->Text("general.architecture", name)
      .U32(key("block_count"), config["num_hidden_layers"])
      .U32(key("context_length"), config["max_position_embeddings"])
      .U32(key("embedding_length"), hidden)
      .U32(key("feed_forward_length"), config["intermediate_size"])
      .U32(key("attention.head_count"), heads)
      .U32(key("attention.head_count_kv"), config["num_key_value_heads"])
      .U32(key("attention.key_length"), head_dim)
      .U32(key("attention.value_length"), head_dim)
      .F32(key("attention.layer_norm_rms_epsilon"), config["rms_norm_eps"]);
  const double part = config.value("partial_rotary_factor", 1.0);
  file->U32(key("rope.dimension_count"), static_cast<uint32_t>(head_dim * part));
  file->F32(key("rope.freq_base"), config.value("rope_theta", 10000.0f));
  if (config.contains("sliding_window") && config["sliding_window"].is_number())
    file->U32(key("attention.sliding_window"), config["sliding_window"]);
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (config.contains(cap) && config[cap].is_number()) file->F32(key(cap), config[cap]);
  }
  for (const char* count : {"num_local_experts", "num_experts"}) {
    if (config.contains(count)) file->U32(key("expert_count"), config[count]);
  }
  if (config.contains("num_experts_per_tok"))
    file->U32(key("expert_used_count"), config["num_experts_per_tok"]);
  if (config.contains("moe_intermediate_size"))
    file->U32(key("expert_feed_forward_length"), config["moe_intermediate_size"]);
  const auto scaling = config.find("rope_scaling");
  if (scaling == config.end() || scaling->is_null()) return;
  if (scaling->contains("rope_type") && (*scaling)["rope_type"] == "linear") {
    file->Text(key("rope.scaling.type"), "linear");
    file->F32(key("rope.scaling.factor"), (*scaling)["factor"]);
    return;
  }
  const auto add = [&](const char* field, const char* tensor) {
    const std::vector<float> divisors = (*scaling)[field].get<std::vector<float>>();
    file->F32Tensor(tensor, {static_cast<int64_t>(divisors.size())}, divisors);
  };
  add("long_factor", "rope_factors_long.weight");
  add("short_factor", "rope_factors_short.weight");
  const double original = config["original_max_position_embeddings"];
  const double longest = config["max_position_embeddings"];
  file->U32(key("rope.scaling.original_context_length"), static_cast<uint32_t>(original));
  if (longest > original) {
    file->F32(key("rope.scaling.attn_factor"),
              static_cast<float>(std::sqrt(1 + std::log(longest / original) / std::log(original))));
  }
}

}  // namespace

std::map<std::string, std::vector<std::string>> ExpertMatrices(const TinyLlama& model) {
  static const std::map<std::string, std::string> kMatrices = {
      {"gate_proj", "gate"}, {"up_proj", "up"}, {"down_proj", "down"},
      {"w1", "gate"},        {"w3", "up"},      {"w2", "down"}};
  std::map<std::string, std::vector<std::string>> stacks;
  for (const auto& [name, tensor] : model.tensors) {
    if (!absl::StrContains(name, ".experts.")) continue;
    // model.layers.N.MODULE.experts.E.MATRIX.weight
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    std::vector<std::string>& stack =
        stacks[absl::StrCat("blk.", parts[2], ".ffn_", kMatrices.at(parts[6]), "_exps.weight")];
    const size_t expert = std::stoul(parts[5]);
    if (stack.size() <= expert) stack.resize(expert + 1);
    stack[expert] = name;
  }
  return stacks;
}

GgufBuilder GgufOfFamily(const TinyLlama& model) {
  const std::string name = FileArchitecture(model.options.architecture);
  const json config = json::parse(model.config);
  GgufBuilder file;
  AddMetadata(name, config, &file);
  SetByteVocabulary(model.options.vocab, &file);
  for (const auto& [own, tensor] : model.tensors) {
    if (absl::StrContains(own, ".experts.")) continue;
    TinyTensor stored = tensor;
    if (absl::StartsWith(name, "gemma") && absl::EndsWith(own, "norm.weight")) {
      for (float& value : stored.values) value += 1;
    }
    if (name == "llama" && (absl::StrContains(own, "q_proj") || absl::StrContains(own, "k_proj")))
      stored.values = InterleavedRows(stored.values, stored.shape[1], config["head_dim"]);
    AddStored(FileName(name, own), stored, &file);
  }
  for (const auto& [own, experts] : ExpertMatrices(model)) {
    TinyTensor stack = model.tensors.at(experts[0]);
    stack.shape.insert(stack.shape.begin(), static_cast<int64_t>(experts.size()));
    stack.values.clear();
    for (const std::string& expert : experts) {
      const std::vector<float>& values = model.tensors.at(expert).values;
      stack.values.insert(stack.values.end(), values.begin(), values.end());
    }
    AddStored(own, stack, &file);
  }
  return file;
}

}  // namespace coppice::test
