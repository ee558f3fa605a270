#include "tests/model/reference_eagle3.h"

#include <cmath>
#include <limits>
#include <utility>

#include "nlohmann/json.hpp"

namespace coppice::model {
namespace {

using Json = nlohmann::json;
using DoubleRow = ReferenceEagle3::Row;

// The field of the first object that has it.
template <typename T>
T FieldOf(const std::vector<Json>& objects, const char* name, T absent) {
  for (const Json& object : objects) {
    const auto found = object.find(name);
    if (found != object.end() && !found->is_null()) return found->get<T>();
  }
  return absent;
}

// The name of the authors.
std::string PlainName(std::string name) {
  for (const char* prefix : {"model.", "layers.0."}) {
    if (name.rfind(prefix, 0) == 0) {
      name = (prefix[0] == 'l' ? "midlayer." : "") + name.substr(std::string(prefix).size());
    }
  }
  return name;
}

}  // namespace

ReferenceEagle3::ReferenceEagle3(const test::TinyLlama& head, const test::TinyLlama& target) {
  for (const auto& [name, tensor] : head.tensors) tensors_[PlainName(name)] = tensor;
  const auto take = [&](const std::string& name, const std::string& of_target) {
    if (!Has(name)) tensors_[name] = target.tensors.at(of_target);
  };
  take("embed_tokens.weight", "model.embed_tokens.weight");
  const bool tied = FieldOf({Json::parse(target.config)}, "tie_word_embeddings", false);
  take("lm_head.weight", tied ? "model.embed_tokens.weight" : "lm_head.weight");
  const Json outer = Json::parse(head.config);
  std::vector<Json> objects = {outer};
  for (const char* inner : {"transformer_layer_config", "eagle_config"}) {
    if (outer.contains(inner) && outer[inner].is_object()) objects.push_back(outer[inner]);
  }
  vocab_ = FieldOf(objects, "vocab_size", 0);
  hidden_ = FieldOf(objects, "hidden_size", 0);
  heads_ = FieldOf(objects, "num_attention_heads", 0);
  kv_heads_ = FieldOf(objects, "num_key_value_heads", heads_);
  head_dim_ = FieldOf(objects, "head_dim", hidden_ / heads_);
  epsilon_ = FieldOf(objects, "rms_norm_eps", 0.0);
  theta_ = FieldOf(objects, "rope_theta", 10000.0);
  norm_whole_ = FieldOf(objects, "norm_before_fc", false);
  norm_each_ = FieldOf(objects, "fc_norm", false);
  normed_residual_ = FieldOf(objects, "norm_before_residual", false);
  normed_output_ = FieldOf(objects, "norm_output", false);
  const auto kinds = FieldOf(objects, "layer_types", std::vector<std::string>());
  if (!kinds.empty() && kinds[0] == "sliding_attention")
    window_ = FieldOf(objects, "sliding_window", 0);
}

DoubleRow ReferenceEagle3::Linear(const std::string& name, const Row& x) const {
  const std::vector<float>& w = tensors_.at(name + ".weight").values;
  Row y(w.size() / x.size());
  for (size_t r = 0; r < y.size(); ++r) {
    for (size_t c = 0; c < x.size(); ++c) y[r] += w[r * x.size() + c] * x[c];
    if (Has(name + ".bias")) y[r] += tensors_.at(name + ".bias").values[r];
  }
  return y;
}

DoubleRow ReferenceEagle3::Normed(const std::string& name, const Row& x) const {
  const std::vector<float>& gain = tensors_.at(name + ".weight").values;
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon_);
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * gain[i];
  return y;
}

DoubleRow ReferenceEagle3::Join(const std::vector<Row>& hidden) const {
  Row all;
  for (size_t layer = 0; layer < hidden.size(); ++layer) {
    const Row part =
        norm_each_ ? Normed("fc_norm." + std::to_string(layer), hidden[layer]) : hidden[layer];
    all.insert(all.end(), part.begin(), part.end());
  }
  return Linear("fc", norm_whole_ ? Normed("input_norm", all) : all);
}

void ReferenceEagle3::FinishHeads(const std::string& norm, int position, Row* heads) const {
  const int half = head_dim_ / 2;
  for (size_t begin = 0; begin < heads->size(); begin += head_dim_) {
    Row head(heads->begin() + begin, heads->begin() + begin + head_dim_);
    if (Has(norm + ".weight")) head = Normed(norm, head);
    for (int i = 0; i < half; ++i) {
      const double angle = position * std::pow(theta_, -2.0 * i / head_dim_);
      (*heads)[begin + i] = head[i] * std::cos(angle) - head[i + half] * std::sin(angle);
      (*heads)[begin + i + half] = head[i + half] * std::cos(angle) + head[i] * std::sin(angle);
    }
  }
}

DoubleRow ReferenceEagle3::Attend(const Row& q) const {
  std::vector<const Computed*> seen;
  for (const Computed* row = &rows_.back();; row = &rows_[row->before]) {
    seen.push_back(row);
    if (row->before < 0 || (window_ > 0 && static_cast<int>(seen.size()) == window_)) break;
  }
  Row out(q.size());
  for (int h = 0; h < heads_; ++h) {
    const int at = h * head_dim_, kv = h / (heads_ / kv_heads_) * head_dim_;
    Row weight(seen.size());
    double total = 0;
    for (size_t s = 0; s < seen.size(); ++s) {
      for (int i = 0; i < head_dim_; ++i) weight[s] += q[at + i] * seen[s]->k[kv + i];
      total += weight[s] = std::exp(weight[s] / std::sqrt(static_cast<double>(head_dim_)));
    }
    for (size_t s = 0; s < seen.size(); ++s) {
      for (int i = 0; i < head_dim_; ++i) out[at + i] += weight[s] / total * seen[s]->v[kv + i];
    }
  }
  return out;
}

DoubleRow ReferenceEagle3::Scattered(const Row& kept) const {
  if (static_cast<int>(kept.size()) == vocab_) return kept;
  Row all(vocab_, -std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < kept.size(); ++i)
    all[i + static_cast<int64_t>(tensors_.at("d2t").values[i])] = kept[i];
  return all;
}

int ReferenceEagle3::Add(int before, TokenId token, const Row& state) {
  const std::vector<float>& table = tensors_.at("embed_tokens.weight").values;
  const Row embedding(table.begin() + token * hidden_, table.begin() + (token + 1) * hidden_);
  const Row normed_state = Normed("midlayer.hidden_norm", state);
  Row x = normed_residual_ ? normed_state : state;
  Row input = Normed("midlayer.input_layernorm", embedding);
  input.insert(input.end(), normed_state.begin(), normed_state.end());
  const std::string attention = "midlayer.self_attn.";
  Computed row;
  row.before = before;
  row.position = before < 0 ? 0 : rows_[before].position + 1;
  Row q = Linear(attention + "q_proj", input);
  row.k = Linear(attention + "k_proj", input);
  row.v = Linear(attention + "v_proj", input);
  FinishHeads(attention + "q_norm", row.position, &q);
  FinishHeads(attention + "k_norm", row.position, &row.k);
  rows_.push_back(std::move(row));
  const auto add = [&](const Row& y) {
    for (int i = 0; i < hidden_; ++i) x[i] += y[i];
  };
  add(Linear(attention + "o_proj", Attend(q)));
  const Row inner = Normed("midlayer.post_attention_layernorm", x);
  Row gate = Linear("midlayer.mlp.gate_proj", inner);
  const Row up = Linear("midlayer.mlp.up_proj", inner);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
  add(Linear("midlayer.mlp.down_proj", gate));
  const Row last = Normed("norm", x);
  rows_.back().state = normed_output_ ? last : x;
  rows_.back().logits = Scattered(Linear("lm_head", last));
  return static_cast<int>(rows_.size()) - 1;
}

}  // namespace coppice::model
