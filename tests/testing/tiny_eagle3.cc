#include "tests/testing/tiny_eagle3.h"

#include <cmath>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace coppice::test {
namespace {

using Json = nlohmann::json;

std::vector<int> DefaultLayers(int layers) {
  std::vector<int> chosen;
  for (const int layer : {0, (layers - 1) / 2, layers - 2}) {
    if (layer >= 0 && (chosen.empty() || layer > chosen.back())) chosen.push_back(layer);
  }
  return chosen;
}

Json MakeConfig(const Json& target, const TinyEagle3Options& o, int hidden) {
  Json config = {
      {"architectures", {"LlamaForCausalLMEagle3"}},
      {"model_type", "llama"},
      {"hidden_act", "silu"},
      {"hidden_size", hidden},
      {"intermediate_size", o.intermediate},
      {"num_hidden_layers", 1},
      {"num_attention_heads", o.heads},
      {"num_key_value_heads", o.kv_heads},
      {"vocab_size", target["vocab_size"]},
      {"max_position_embeddings", o.max_positions},
      {"rms_norm_eps", 1e-5},
      {"rope_theta", 10000.0},
      {"rope_scaling", nullptr},
      {"tie_word_embeddings", false},
      {"attention_bias", false},
      {"bos_token_id", 1},
      {"eos_token_id", 2},
      {"torch_dtype", o.dtype == "F32"   ? "float32"
                      : o.dtype == "F16" ? "float16"
                                         : "bfloat16"},
      {"eagle_config",
       {{"eagle_aux_hidden_state_layer_ids", o.layers}, {"use_aux_hidden_state", true}}}};
  if (o.head_dim != 0) config["head_dim"] = o.head_dim;
  if (hidden != target["hidden_size"]) config["target_hidden_size"] = target["hidden_size"];
  const size_t vocab = target["vocab_size"];
  config["draft_vocab_size"] = o.ids.empty() ? vocab : o.ids.size();
  return config;
}

TinyLlama MakeHead(const Json& target, TinyEagle3Options o) {
  if (o.layers.empty()) o.layers = DefaultLayers(target["num_hidden_layers"]);
  const int of_target = target["hidden_size"], vocab = target["vocab_size"];
  const int hidden = o.hidden != 0 ? o.hidden : of_target;
  const int head_dim = o.head_dim != 0 ? o.head_dim : hidden / o.heads;
  TinyLlama model;
  model.config = MakeConfig(target, o, hidden).dump();
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, double mean,
                       double deviation) {
    model.tensors[name] =
        tiny_llama::RandomTensor(name, std::move(shape), o.dtype, mean, deviation, o.seed);
  };
  const auto linear = [&](const std::string& name, int64_t rows, int64_t columns) {
    add(name + ".weight", {rows, columns}, 0, 1.5 / std::sqrt(static_cast<double>(columns)));
  };
  if (o.has_embedding) add("embed_tokens.weight", {vocab, hidden}, 0, 1);
  linear("fc", hidden, static_cast<int64_t>(o.layers.size()) * of_target);
  for (const char* norm : {"hidden_norm", "input_layernorm", "post_attention_layernorm"})
    add(absl::StrCat("midlayer.", norm, ".weight"), {hidden}, 1, 0.2);
  linear("midlayer.self_attn.q_proj", o.heads * head_dim, 2 * hidden);
  linear("midlayer.self_attn.k_proj", o.kv_heads * head_dim, 2 * hidden);
  linear("midlayer.self_attn.v_proj", o.kv_heads * head_dim, 2 * hidden);
  linear("midlayer.self_attn.o_proj", hidden, o.heads * head_dim);
  linear("midlayer.mlp.gate_proj", o.intermediate, hidden);
  linear("midlayer.mlp.up_proj", o.intermediate, hidden);
  linear("midlayer.mlp.down_proj", hidden, o.intermediate);
  add("norm.weight", {hidden}, 1, 0.2);
  const int rows = o.ids.empty() ? vocab : static_cast<int>(o.ids.size());
  linear("lm_head", rows, hidden);
  TinyTensor d2t{"I64", {rows}, std::vector<float>(rows)}, t2d{"BOOL", {vocab}, {}};
  t2d.bytes.assign(vocab, o.ids.empty() ? '\1' : '\0');
  for (size_t row = 0; row < o.ids.size(); ++row) {
    d2t.values[row] = static_cast<float>(o.ids[row] - static_cast<int>(row));
    t2d.bytes[o.ids[row]] = '\1';
  }
  model.tensors["d2t"] = std::move(d2t);
  model.tensors["t2d"] = std::move(t2d);
  return model;
}

}  // namespace

TinyLlama MakeTinyEagle3(const TinyLlama& target, const TinyEagle3Options& options) {
  return MakeHead(Json::parse(target.config), options);
}

TinyLlama MakeTinyEagle3(const std::string& target, const TinyEagle3Options& options) {
  std::ifstream file(target + "/config.json");
  return MakeHead(Json::parse(file), options);
}

void StoreAsSpeculator(TinyLlama* head) {
  Json flat = Json::parse(head->config);
  Json config = {{"architectures", {"Eagle3Speculator"}},
                 {"speculators_model_type", "eagle3"},
                 {"tie_word_embeddings", false},
                 {"norm_before_residual", false}};
  std::vector<int> layers = flat["eagle_config"]["eagle_aux_hidden_state_layer_ids"];
  for (int& layer : layers) ++layer;
  config["eagle_aux_hidden_state_layer_ids"] = layers;
  for (const char* field : {"draft_vocab_size", "target_hidden_size", "torch_dtype"}) {
    if (flat.contains(field)) config[field] = flat[field];
    flat.erase(field);
  }
  flat.erase("architectures");
  flat.erase("eagle_config");
  config["transformer_layer_config"] = flat;
  head->config = config.dump();
  std::map<std::string, TinyTensor> tensors;
  for (auto& [name, tensor] : head->tensors) {
    absl::string_view rest = name;
    const bool in_layer = absl::ConsumePrefix(&rest, "midlayer.");
    tensors[absl::StrCat(in_layer ? "layers.0." : "", rest)] = std::move(tensor);
  }
  head->tensors = std::move(tensors);
}

}  // namespace coppice::test
