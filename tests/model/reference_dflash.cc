#include "tests/model/reference_dflash.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "nlohmann/json.hpp"

namespace coppice::model {
namespace {

using Json = nlohmann::json;
using Row = std::vector<double>;

Row Product(const test::TinyTensor& w, const Row& x) {
  Row y(w.shape[0]);
  for (size_t r = 0; r < y.size(); ++r) {
    for (size_t c = 0; c < x.size(); ++c) y[r] += w.values[r * x.size() + c] * x[c];
  }
  return y;
}

void Norm(const test::TinyTensor& gain, double epsilon, double* x) {
  const auto n = static_cast<int>(gain.values.size());
  double squares = 0;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  for (int i = 0; i < n; ++i) x[i] *= gain.values[i] / std::sqrt(squares / n + epsilon);
}

}  // namespace

double ReferenceDFlash::Number(const char* field) const {
  return Json::parse(draft_.config)[field].get<double>();
}

const test::TinyTensor& ReferenceDFlash::Find(const std::string& own,
                                              const std::string& of_target) const {
  const auto found = draft_.tensors.find(own);
  return found != draft_.tensors.end() ? found->second : target_.tensors.at(of_target);
}

Row ReferenceDFlash::Linear(const std::string& name, const Row& x) const {
  return Product(draft_.tensors.at(name + ".weight"), x);
}

Row ReferenceDFlash::Normed(const std::string& name, const Row& x) const {
  Row normed = x;
  Norm(draft_.tensors.at(name + ".weight"), Number("rms_norm_eps"), normed.data());
  return normed;
}

Row ReferenceDFlash::Heads(const std::string& norm, Row x, int position) const {
  const auto dim = static_cast<int>(Number("head_dim"));
  const double theta = Number("rope_theta");
  for (size_t head = 0; head < x.size(); head += dim) {
    double* const v = x.data() + head;
    Norm(draft_.tensors.at(norm + ".weight"), Number("rms_norm_eps"), v);
    for (int i = 0; i < dim / 2; ++i) {
      const double angle = position * std::pow(theta, -2.0 * i / dim);
      const double a = v[i], b = v[i + dim / 2];
      v[i] = a * std::cos(angle) - b * std::sin(angle);
      v[i + dim / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  return x;
}

Row ReferenceDFlash::State(const Row& outputs) const {
  return Normed("hidden_norm", Linear("fc", outputs));
}

std::vector<Row> ReferenceDFlash::BlockLogits(const std::vector<Row>& context, TokenId root,
                                              int rows) const {
  const Json config = Json::parse(draft_.config);
  const auto dim = static_cast<int>(Number("head_dim"));
  const int group =
      config["num_attention_heads"].get<int>() / config["num_key_value_heads"].get<int>();
  const TokenId mask = config.contains("dflash_config")
                           ? config["dflash_config"]["mask_token_id"].get<TokenId>()
                           : config["mask_token_id"].get<TokenId>();
  const test::TinyTensor& embedding = Find("embed_tokens.weight", "model.embed_tokens.weight");
  const auto before = static_cast<int>(context.size());
  std::vector<Row> x(rows);
  for (int r = 0; r < rows; ++r) {
    const auto* const begin = embedding.values.data() + (r == 0 ? root : mask) * embedding.shape[1];
    x[r].assign(begin, begin + embedding.shape[1]);
  }
  for (int layer = 0; layer < config["num_hidden_layers"].get<int>(); ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const std::string attention = prefix + "self_attn.";
    std::vector<Row> k, v, q;
    for (int p = 0; p < before + rows; ++p) {
      const Row in = p < before ? context[p] : Normed(prefix + "input_layernorm", x[p - before]);
      k.push_back(Heads(attention + "k_norm", Linear(attention + "k_proj", in), p));
      v.push_back(Linear(attention + "v_proj", in));
      if (p >= before)
        q.push_back(Heads(attention + "q_norm", Linear(attention + "q_proj", in), p));
    }
    for (int r = 0; r < rows; ++r) {
      Row attended(q[r].size());
      for (int head = 0; head * dim < static_cast<int>(attended.size()); ++head) {
        const int own = head * dim, shared = head / group * dim;
        Row weight;
        double sum = 0;
        for (const Row& key : k) {
          double score = 0;
          for (int i = 0; i < dim; ++i) score += q[r][own + i] * key[shared + i];
          weight.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
          sum += weight.back();
        }
        for (size_t p = 0; p < v.size(); ++p) {
          for (int i = 0; i < dim; ++i) attended[own + i] += weight[p] / sum * v[p][shared + i];
        }
      }
      const Row added = Linear(attention + "o_proj", attended);
      for (size_t i = 0; i < added.size(); ++i) x[r][i] += added[i];
      const Row inner = Normed(prefix + "post_attention_layernorm", x[r]);
      Row gate = Linear(prefix + "mlp.gate_proj", inner);
      const Row up = Linear(prefix + "mlp.up_proj", inner);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      const Row down = Linear(prefix + "mlp.down_proj", gate);
      for (size_t i = 0; i < down.size(); ++i) x[r][i] += down[i];
    }
  }
  const bool tied = Json::parse(target_.config)["tie_word_embeddings"].get<bool>();
  const test::TinyTensor& head =
      Find("lm_head.weight", tied ? "model.embed_tokens.weight" : "lm_head.weight");
  std::vector<Row> logits;
  for (const Row& row : x) logits.push_back(Product(head, Normed("norm", row)));
  return logits;
}

Row ReferenceDFlash::MarkovBias(TokenId before) const {
  const test::TinyTensor& w1 = draft_.tensors.at("markov_head.markov_w1.weight");
  const auto* const begin = w1.values.data() + before * w1.shape[1];
  return Product(draft_.tensors.at("markov_head.markov_w2.weight"),
                 Row(begin, begin + w1.shape[1]));
}

}  // namespace coppice::model
