#include "tests/model/reference_llama.h"

#include <cmath>
#include <numbers>
#include <string>

#include "nlohmann/json.hpp"

namespace coppice::model {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

class Reference {
 public:
  explicit Reference(const test::TinyLlama& model)
      : model_(model),
        o_(model.options),
        rope_scaling_(nlohmann::json::parse(model.config)["rope_scaling"]) {
    head_dim_ = o_.head_dim != 0 ? o_.head_dim : o_.hidden / o_.heads;
  }

  Rows Logits(const std::vector<TokenId>& tokens) const {
    Rows x;
    for (const TokenId token : tokens) {
      Row row(o_.hidden);
      for (int i = 0; i < o_.hidden; ++i)
        row[i] = Values("model.embed_tokens.weight")[token * o_.hidden + i];
      x.push_back(row);
    }
    for (int layer = 0; layer < o_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      const Rows attended = Attention(prefix + "self_attn.", Normed(prefix + "input_layernorm", x));
      for (size_t t = 0; t < x.size(); ++t)
        AddTo(&x[t], Linear(prefix + "self_attn.o_proj", attended[t]));
      const Rows inner = Normed(prefix + "post_attention_layernorm", x);
      for (size_t t = 0; t < x.size(); ++t) AddTo(&x[t], Mlp(prefix + "mlp.", inner[t]));
    }
    Rows logits;
    for (const Row& row : Normed("model.norm", x)) {
      logits.push_back(Linear(o_.tied ? "model.embed_tokens" : "lm_head", row));
    }
    return logits;
  }

 private:
  const std::vector<float>& Values(const std::string& name) const {
    return model_.tensors.at(name).values;
  }

  static void AddTo(Row* x, const Row& y) {
    for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
  }

  Rows Normed(const std::string& name, const Rows& x) const {
    const std::vector<float>& gain = Values(name + ".weight");
    Rows out = x;
    for (Row& row : out) {
      double squares = 0;
      for (const double v : row) squares += v * v;
      const double scale = 1 / std::sqrt(squares / row.size() + 1e-5);
      for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * gain[i];
    }
    return out;
  }

  Row Linear(const std::string& name, const Row& x) const {
    const std::vector<float>& w = Values(name + ".weight");
    Row y(w.size() / x.size());
    for (size_t r = 0; r < y.size(); ++r) {
      for (size_t c = 0; c < x.size(); ++c) y[r] += w[r * x.size() + c] * x[c];
    }
    const auto bias = model_.tensors.find(name + ".bias");
    if (bias != model_.tensors.end()) {
      for (size_t r = 0; r < y.size(); ++r) y[r] += bias->second.values[r];
    }
    return y;
  }

  Row Mlp(const std::string& prefix, const Row& x) const {
    Row gate = Linear(prefix + "gate_proj", x);
    const Row up = Linear(prefix + "up_proj", x);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return Linear(prefix + "down_proj", gate);
  }

  // Inverse frequency of pair i, with the llama3 or linear scaling of the config.
  double Frequency(int i) const {
    const double plain = std::pow(10000.0, -2.0 * i / head_dim_);
    const nlohmann::json& scaling = rope_scaling_;
    if (scaling.is_null()) return plain;
    const double factor = scaling["factor"];
    if (scaling["rope_type"] == "linear") return plain / factor;
    const double original = scaling["original_max_position_embeddings"];
    const double low = scaling["low_freq_factor"], high = scaling["high_freq_factor"];
    const double wavelength = 2 * std::numbers::pi / plain;
    if (wavelength < original / high) return plain;
    if (wavelength > original / low) return plain / factor;
    const double smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * plain / factor + smooth * plain;
  }

  // x * cos + rotate_half(x) * sin, for one head.
  void Rotate(double* head, int position) const {
    const int half = head_dim_ / 2;
    for (int i = 0; i < half; ++i) {
      const double angle = position * Frequency(i), a = head[i], b = head[i + half];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  Rows Projected(const std::string& name, const Rows& x, bool rotate) const {
    Rows out;
    for (size_t t = 0; t < x.size(); ++t) {
      out.push_back(Linear(name, x[t]));
      for (size_t h = 0; rotate && h < out[t].size(); h += head_dim_)
        Rotate(&out[t][h], static_cast<int>(t));
    }
    return out;
  }

  Rows Attention(const std::string& prefix, const Rows& x) const {
    const Rows q = Projected(prefix + "q_proj", x, true), k = Projected(prefix + "k_proj", x, true);
    const Rows v = Projected(prefix + "v_proj", x, false);
    Rows out(x.size(), Row(o_.heads * head_dim_));
    for (size_t t = 0; t < x.size(); ++t) {
      for (int h = 0; h < o_.heads; ++h) Attend(q[t], k, v, static_cast<int>(t), h, &out[t]);
    }
    return out;
  }

  void Attend(const Row& q, const Rows& k, const Rows& v, int t, int h, Row* out) const {
    const int query = h * head_dim_, key = h / (o_.heads / o_.kv_heads) * head_dim_;
    Row weight(t + 1);
    double total = 0;
    for (int s = 0; s <= t; ++s) {
      double score = 0;
      for (int i = 0; i < head_dim_; ++i) score += q[query + i] * k[s][key + i];
      total += weight[s] = std::exp(score / std::sqrt(head_dim_));
    }
    for (int s = 0; s <= t; ++s) {
      for (int i = 0; i < head_dim_; ++i) (*out)[query + i] += weight[s] / total * v[s][key + i];
    }
  }

  const test::TinyLlama& model_;
  const test::TinyLlamaOptions& o_;
  const nlohmann::json rope_scaling_;
  int head_dim_ = 0;
};

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(const test::TinyLlama& model,
                                                 const std::vector<TokenId>& tokens) {
  return Reference(model).Logits(tokens);
}

}  // namespace coppice::model
