#include "tests/model/reference_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "nlohmann/json.hpp"

namespace coppice::model {
namespace {

using Json = nlohmann::json;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

double Number(const Json& json, const char* field, double absent) {
  const auto found = json.find(field);
  return found == json.end() || found->is_null() ? absent : found->get<double>();
}
bool Flag(const Json& json, const char* field, bool absent) {
  const auto found = json.find(field);
  return found == json.end() || found->is_null() ? absent : found->get<bool>();
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class Reference {
 public:
  explicit Reference(const test::TinyLlama& model)
      : model_(model), config_(Json::parse(model.config)) {
    architecture_ = config_["architectures"][0];
    hidden_ = config_["hidden_size"];
    layers_ = config_["num_hidden_layers"];
    heads_ = config_["num_attention_heads"];
    kv_heads_ = static_cast<int>(Number(config_, "num_key_value_heads", heads_));
    head_dim_ = static_cast<int>(Number(config_, "head_dim", hidden_ / heads_));
  }

  // The residual stream after each layer, [layers][tokens][hidden].
  std::vector<Rows> Outputs(const std::vector<TokenId>& tokens) {
    std::vector<Rows> outputs;
    outputs_ = &outputs;
    Logits(tokens);
    outputs_ = nullptr;
    return outputs;
  }

  Rows Logits(const std::vector<TokenId>& tokens) const {
    if (Is("GPTNeoX")) return GptNeoXLogits(tokens);
    return Is("OPT") ? OptLogits(tokens) : LlamaLogits(tokens);
  }

 private:
  bool Is(const char* family) const { return architecture_.rfind(family, 0) == 0; }
  bool Has(const std::string& name) const { return model_.tensors.count(name) > 0; }
  const std::vector<float>& Values(const std::string& name) const {
    return model_.tensors.at(name).values;
  }

  static void AddTo(Row* x, const Row& y, double factor = 1) {
    for (size_t i = 0; i < y.size(); ++i) (*x)[i] += factor * y[i];
  }

  Rows Embedded(const std::string& name, const std::vector<TokenId>& tokens, double factor) const {
    const std::vector<float>& table = Values(name);
    const auto width = static_cast<int>(model_.tensors.at(name).shape[1]);
    Rows x;
    for (const TokenId token : tokens) {
      Row row(width);
      for (int i = 0; i < width; ++i) row[i] = factor * table[token * width + i];
      x.push_back(row);
    }
    return x;
  }

  Row Linear(const std::string& name, const Row& x) const {
    const std::vector<float>& w = Values(name + ".weight");
    Row y(w.size() / x.size());
    for (size_t r = 0; r < y.size(); ++r) {
      for (size_t c = 0; c < x.size(); ++c) y[r] += w[r * x.size() + c] * x[c];
    }
    if (Has(name + ".bias")) {
      for (size_t r = 0; r < y.size(); ++r) y[r] += Values(name + ".bias")[r];
    }
    return y;
  }

  // RMS norm of n values. Gemma's gains are stored less 1.
  void RmsNorm(const std::string& name, double* x, int n) const {
    const std::vector<float>& gain = Values(name + ".weight");
    double squares = 0;
    for (int i = 0; i < n; ++i) squares += x[i] * x[i];
    const double scale = 1 / std::sqrt(squares / n + Number(config_, "rms_norm_eps", 1e-6));
    for (int i = 0; i < n; ++i) x[i] *= scale * (gain[i] + (Is("Gemma") ? 1.0 : 0.0));
  }
  Row Normed(const std::string& name, Row x) const {
    RmsNorm(name, x.data(), static_cast<int>(x.size()));
    return x;
  }
  Row LayerNormed(const std::string& name, Row x) const {
    const std::vector<float>&gain = Values(name + ".weight"), &bias = Values(name + ".bias");
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / x.size();
    for (const double v : x) variance += (v - mean) * (v - mean) / x.size();
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * gain[i] + bias[i];
    return x;
  }

  Rows LlamaLogits(const std::vector<TokenId>& tokens) const {
    const double embedding_factor = Is("Gemma")     ? std::sqrt(EmbeddingSquare())
                                    : Is("Granite") ? Number(config_, "embedding_multiplier", 1)
                                                    : 1;
    Rows x = Embedded("model.embed_tokens.weight", tokens, embedding_factor);
    const double residual = Is("Granite") ? Number(config_, "residual_multiplier", 1) : 1;
    for (int layer = 0; layer < layers_; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      Rows inner;
      for (const Row& row : x)
        inner.push_back(Is("Olmo2") ? row : Normed(prefix + "input_layernorm", row));
      const Rows attended = Attention(layer, prefix + "self_attn.", inner);
      for (size_t t = 0; t < x.size(); ++t) {
        Row added = Linear(prefix + "self_attn.o_proj", attended[t]);
        const bool after = Is("Gemma") || Is("Olmo2");
        if (after) added = Normed(prefix + "post_attention_layernorm", added);
        AddTo(&x[t], added, residual);
        const char* before = Is("Gemma") ? "pre_feedforward_layernorm" : "post_attention_layernorm";
        added = LayerMlp(prefix, Is("Olmo2") ? x[t] : Normed(prefix + before, x[t]));
        if (after) added = Normed(prefix + "post_feedforward_layernorm", added);
        AddTo(&x[t], added, residual);
      }
      Note(x);
    }
    const bool tied = Flag(config_, "tie_word_embeddings", Is("Gemma"));
    Rows logits;
    for (const Row& row : x) {
      Row out = Linear(tied ? "model.embed_tokens" : "lm_head", Normed("model.norm", row));
      if (Is("Granite")) {
        for (double& value : out) value /= Number(config_, "logits_scaling", 1);
      }
      Cap(Number(config_, "final_logit_softcapping", 0), &out);
      logits.push_back(out);
    }
    return logits;
  }

  // The square of the factor of Gemma's embedding. Its root has the precision of the weights.
  double EmbeddingSquare() const {
    if (config_["torch_dtype"] != "bfloat16") return hidden_;
    const auto bits = static_cast<int>(std::lround(std::sqrt(hidden_) * 32));  // 4 to 8: 8 bits
    return bits / 32.0 * (bits / 32.0);
  }

  static void Cap(double cap, Row* values) {
    if (cap == 0) return;
    for (double& value : *values) value = cap * std::tanh(value / cap);
  }

  Row LayerMlp(const std::string& prefix, const Row& x) const {
    if (Is("Mixtral")) {
      const int chosen = config_["num_experts_per_tok"];
      return Experts(prefix + "block_sparse_moe.", {"w1", "w3", "w2"}, chosen, true, x);
    }
    if (!Has(prefix + "mlp.gate.weight")) return Mlp(prefix + "mlp.", x);
    return Experts(prefix + "mlp.", {"gate_proj", "up_proj", "down_proj"},
                   config_["num_experts_per_tok"], config_["norm_topk_prob"], x);
  }

  // names: of gate, up and down.
  Row Experts(const std::string& prefix, const std::vector<std::string>& names, int chosen,
              bool normalised, const Row& x) const {
    Row share = Linear(prefix + "gate", x);
    double total = 0;
    for (double& s : share) total += s = std::exp(s);
    for (double& s : share) s /= total;
    Row left = share, out(hidden_);
    std::vector<int> taken;
    double of_taken = 0;
    for (int i = 0; i < chosen; ++i) {
      const auto best = std::max_element(left.begin(), left.end());
      taken.push_back(static_cast<int>(best - left.begin()));
      of_taken += *best;
      *best = -1;
    }
    for (const int expert : taken) {
      const std::string one = prefix + "experts." + std::to_string(expert) + ".";
      Row gate = Linear(one + names[0], x);
      const Row up = Linear(one + names[1], x);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= Sigmoid(gate[i]) * up[i];
      AddTo(&out, Linear(one + names[2], gate), share[expert] / (normalised ? of_taken : 1));
    }
    return out;
  }

  Row Mlp(const std::string& prefix, const Row& x) const {
    Row gate, up;
    if (Is("Phi3")) {
      const Row both = Linear(prefix + "gate_up_proj", x);
      gate.assign(both.begin(), both.begin() + both.size() / 2);
      up.assign(both.begin() + both.size() / 2, both.end());
    } else {
      gate = Linear(prefix + "gate_proj", x);
      up = Linear(prefix + "up_proj", x);
    }
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      const double u = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
      gate[i] = (Is("Gemma") ? g * Sigmoid(2 * u) : g * Sigmoid(g)) * up[i];
    }
    return Linear(prefix + "down_proj", gate);
  }

  // Whether the layer has a window.
  bool Slides(int layer) const {
    if (Is("Mistral") || Is("Phi3")) return true;
    if (Is("Gemma2")) return layer % 2 == 0;
    if (Is("Gemma3")) return (layer + 1) % config_["sliding_window_pattern"].get<int>() != 0;
    if (Is("Qwen") && Flag(config_, "use_sliding_window", false))
      return layer >= config_["max_window_layers"].get<int>();
    return false;
  }

  bool Rotates(int layer) const {
    return !Is("SmolLM3") || config_["no_rope_layers"][layer].get<int>() == 1;
  }

  // Inverse frequencies of the rotated pairs, and the factor of cos and sin.
  Row Frequencies(int layer, double* factor) const {
    const bool local = Is("Gemma3") && Slides(layer);
    const double part = Number(config_, Is("GPTNeoX") ? "rotary_pct" : "partial_rotary_factor", 1);
    const int dim = static_cast<int>(head_dim_ * part);
    const double theta =
        local ? Number(config_, "rope_local_base_freq", 0)
              : Number(config_, Is("GPTNeoX") ? "rotary_emb_base" : "rope_theta", 10000);
    Row plain(dim / 2);
    for (int i = 0; i < dim / 2; ++i) plain[i] = std::pow(theta, -2.0 * i / dim);
    *factor = 1;
    const auto found = config_.find("rope_scaling");
    if (local || found == config_.end() || found->is_null()) return plain;
    const Json& scaling = *found;
    const std::string type = scaling.contains("rope_type") ? scaling["rope_type"] : scaling["type"];
    const double times = Number(scaling, "factor", 0);
    if (type == "longrope") return LongRope(scaling, plain, factor);
    if (type == "yarn") return Yarn(scaling, plain, theta, factor);
    for (double& f : plain) f = type == "linear" ? f / times : Llama3(scaling, f);
    return plain;
  }

  static double Llama3(const Json& scaling, double f) {
    const double original = scaling["original_max_position_embeddings"];
    const double low = scaling["low_freq_factor"], high = scaling["high_freq_factor"];
    const double wavelength = 2 * std::numbers::pi / f, times = scaling["factor"];
    if (wavelength < original / high) return f;
    if (wavelength > original / low) return f / times;
    const double smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * f / times + smooth * f;
  }

  Row LongRope(const Json& scaling, Row plain, double* factor) const {
    const double original = Number(config_, "original_max_position_embeddings", 0);
    const double longest = config_["max_position_embeddings"];
    const Json& divisors = scaling[longest > original ? "long_factor" : "short_factor"];
    for (size_t i = 0; i < plain.size(); ++i) plain[i] /= divisors[i].get<double>();
    if (longest > original)
      *factor = std::sqrt(1 + std::log(longest / original) / std::log(original));
    return plain;
  }

  Row Yarn(const Json& scaling, Row plain, double theta, double* factor) const {
    const double original = scaling["original_max_position_embeddings"];
    const double times = scaling["factor"], dim = 2.0 * plain.size();
    const auto pair_of = [&](double turns) {
      return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    const double low = std::max(0.0, std::floor(pair_of(Number(scaling, "beta_fast", 32))));
    const double high = std::min(dim - 1, std::ceil(pair_of(Number(scaling, "beta_slow", 1))));
    for (size_t i = 0; i < plain.size(); ++i) {
      const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      plain[i] = plain[i] / times * ramp + plain[i] * (1 - ramp);
    }
    const auto scale = [&](double m) { return 0.1 * m * std::log(times) + 1; };
    *factor = scaling.contains("mscale")
                  ? scale(scaling["mscale"]) / scale(scaling["mscale_all_dim"])
                  : scale(1);
    return plain;
  }

  // One head: its norm, then x * cos + rotate_half(x) * sin.
  void Finish(int layer, const std::string& norm, int position, double* head) const {
    if (Has(norm + ".weight") && !Is("Olmo2")) RmsNorm(norm, head, head_dim_);
    if (!Rotates(layer)) return;
    double factor = 1;
    const Row frequencies = Frequencies(layer, &factor);
    const auto half = static_cast<int>(frequencies.size());
    for (int i = 0; i < half; ++i) {
      const double angle = position * frequencies[i], a = head[i], b = head[i + half];
      head[i] = factor * (a * std::cos(angle) - b * std::sin(angle));
      head[i + half] = factor * (b * std::cos(angle) + a * std::sin(angle));
    }
  }

  Rows Attention(int layer, const std::string& prefix, const Rows& x) const {
    Rows q, k, v;
    for (const Row& row : x) {
      if (Is("Phi3")) {
        const Row all = Linear(prefix + "qkv_proj", row);
        const auto begin = all.begin(), end_q = begin + heads_ * head_dim_;
        q.emplace_back(begin, end_q);
        k.emplace_back(end_q, end_q + kv_heads_ * head_dim_);
        v.emplace_back(end_q + kv_heads_ * head_dim_, all.end());
      } else {
        q.push_back(Linear(prefix + "q_proj", row));
        k.push_back(Linear(prefix + "k_proj", row));
        v.push_back(Linear(prefix + "v_proj", row));
      }
      if (Is("Olmo2")) {
        RmsNorm(prefix + "q_norm", q.back().data(), static_cast<int>(q.back().size()));
        RmsNorm(prefix + "k_norm", k.back().data(), static_cast<int>(k.back().size()));
      }
      const int position = static_cast<int>(q.size()) - 1;
      for (int h = 0; h < heads_; ++h)
        Finish(layer, prefix + "q_norm", position, &q.back()[h * head_dim_]);
      for (int h = 0; h < kv_heads_; ++h)
        Finish(layer, prefix + "k_norm", position, &k.back()[h * head_dim_]);
    }
    double scale = 1 / std::sqrt(head_dim_);
    if (Is("Gemma")) scale = 1 / std::sqrt(Number(config_, "query_pre_attn_scalar", 256));
    if (Is("Granite")) scale = Number(config_, "attention_multiplier", 1);
    const int window = Slides(layer) ? static_cast<int>(Number(config_, "sliding_window", 0)) : 0;
    return Attend(q, k, v, scale, window, Number(config_, "attn_logit_softcapping", 0));
  }

  Rows Attend(const Rows& q, const Rows& k, const Rows& v, double scale, int window,
              double cap) const {
    Rows out(q.size(), Row(heads_ * head_dim_));
    for (int t = 0; t < static_cast<int>(q.size()); ++t) {
      const int first = window == 0 ? 0 : std::max(0, t - window + 1);
      for (int h = 0; h < heads_; ++h) {
        const int query = h * head_dim_, key = h / (heads_ / kv_heads_) * head_dim_;
        Row weight(t + 1);
        for (int s = first; s <= t; ++s) {
          for (int i = 0; i < head_dim_; ++i) weight[s] += scale * q[t][query + i] * k[s][key + i];
        }
        Cap(cap, &weight);
        double total = 0;
        for (int s = first; s <= t; ++s) total += weight[s] = std::exp(weight[s]);
        for (int s = first; s <= t; ++s) {
          for (int i = 0; i < head_dim_; ++i)
            out[t][query + i] += weight[s] / total * v[s][key + i];
        }
      }
    }
    return out;
  }

  Rows GptNeoXLogits(const std::vector<TokenId>& tokens) const {
    const std::string root = "gpt_neox.";
    const bool parallel = config_["use_parallel_residual"];
    Rows x = Embedded(root + "embed_in.weight", tokens, 1);
    for (int layer = 0; layer < layers_; ++layer) {
      const std::string prefix = root + "layers." + std::to_string(layer) + ".";
      Rows q, k, v;
      for (const Row& row : x) {
        const Row all = Linear(prefix + "attention.query_key_value",
                               LayerNormed(prefix + "input_layernorm", row));
        Row parts[3];
        for (int h = 0; h < heads_; ++h) {
          for (int part = 0; part < 3; ++part) {
            const auto begin = all.begin() + (h * 3 + part) * head_dim_;
            parts[part].insert(parts[part].end(), begin, begin + head_dim_);
          }
        }
        const int position = static_cast<int>(q.size());
        for (int h = 0; h < heads_; ++h) {
          Finish(layer, "", position, &parts[0][h * head_dim_]);
          Finish(layer, "", position, &parts[1][h * head_dim_]);
        }
        q.push_back(parts[0]), k.push_back(parts[1]), v.push_back(parts[2]);
      }
      const Rows attended = Attend(q, k, v, 1 / std::sqrt(head_dim_), 0, 0);
      for (size_t t = 0; t < x.size(); ++t) {
        const Row before = x[t];
        AddTo(&x[t], Linear(prefix + "attention.dense", attended[t]));
        Row inner =
            Linear(prefix + "mlp.dense_h_to_4h",
                   LayerNormed(prefix + "post_attention_layernorm", parallel ? before : x[t]));
        for (double& value : inner) value *= std::erfc(-value / std::sqrt(2.0)) / 2;
        AddTo(&x[t], Linear(prefix + "mlp.dense_4h_to_h", inner));
      }
      Note(x);
    }
    Rows logits;
    for (const Row& row : x)
      logits.push_back(Linear("embed_out", LayerNormed(root + "final_layer_norm", row)));
    return logits;
  }

  Rows OptLogits(const std::vector<TokenId>& tokens) const {
    const std::string root = "model.decoder.";
    const bool before = config_["do_layer_norm_before"];
    Rows x = Embedded(root + "embed_tokens.weight", tokens, 1);
    for (size_t t = 0; t < x.size(); ++t) {
      if (Has(root + "project_in.weight")) x[t] = Linear(root + "project_in", x[t]);
      for (int i = 0; i < hidden_; ++i)
        x[t][i] += Values(root + "embed_positions.weight")[(t + 2) * hidden_ + i];
    }
    for (int layer = 0; layer < layers_; ++layer) {
      const std::string prefix = root + "layers." + std::to_string(layer) + ".";
      Rows q, k, v;
      for (const Row& row : x) {
        const Row in = before ? LayerNormed(prefix + "self_attn_layer_norm", row) : row;
        q.push_back(Linear(prefix + "self_attn.q_proj", in));
        k.push_back(Linear(prefix + "self_attn.k_proj", in));
        v.push_back(Linear(prefix + "self_attn.v_proj", in));
      }
      const Rows attended = Attend(q, k, v, 1 / std::sqrt(head_dim_), 0, 0);
      for (size_t t = 0; t < x.size(); ++t) {
        AddTo(&x[t], Linear(prefix + "self_attn.out_proj", attended[t]));
        if (!before) x[t] = LayerNormed(prefix + "self_attn_layer_norm", x[t]);
        Row inner =
            Linear(prefix + "fc1", before ? LayerNormed(prefix + "final_layer_norm", x[t]) : x[t]);
        for (double& value : inner) value = std::max(value, 0.0);
        AddTo(&x[t], Linear(prefix + "fc2", inner));
        if (!before) x[t] = LayerNormed(prefix + "final_layer_norm", x[t]);
      }
      Note(x);
    }
    Rows logits;
    for (Row row : x) {
      if (before) row = LayerNormed(root + "final_layer_norm", row);
      if (Has(root + "project_out.weight")) row = Linear(root + "project_out", row);
      logits.push_back(Linear(root + "embed_tokens", row));
    }
    return logits;
  }

  void Note(const Rows& x) const {
    if (outputs_ != nullptr) outputs_->push_back(x);
  }

  const test::TinyLlama& model_;
  const Json config_;
  std::vector<Rows>* outputs_ = nullptr;
  std::string architecture_;
  int hidden_ = 0, layers_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0;
};

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(const test::TinyLlama& model,
                                                 const std::vector<TokenId>& tokens) {
  return Reference(model).Logits(tokens);
}

std::vector<std::vector<std::vector<double>>> ReferenceOutputs(const test::TinyLlama& model,
                                                               const std::vector<TokenId>& tokens) {
  return Reference(model).Outputs(tokens);
}

std::vector<TokenId> ReferenceGreedy(const test::TinyLlama& model, std::vector<TokenId> tokens,
                                     int count) {
  const size_t prompt = tokens.size();
  for (int i = 0; i < count; ++i) {
    const Row logits = Reference(model).Logits(tokens).back();
    tokens.push_back(
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return {tokens.begin() + prompt, tokens.end()};
}

}  // namespace coppice::model
