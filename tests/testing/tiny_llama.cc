#include "tests/testing/tiny_llama.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "sampling/rng.h"

namespace coppice::test {
namespace tiny_llama {

float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float FromHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

}  // namespace tiny_llama

namespace {

uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Rounds to nearest, ties to even. |value| < 65504.
uint16_t ToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24));
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  const int mantissa =
      static_cast<int>(std::nearbyint(fraction * 2048));  // 1024 .. 2048; 2048 carries over
  return sign | static_cast<uint16_t>(((exponent + 14) << 10) + (mantissa - 1024));
}

// The bytes of one value in the file.
std::string Encode(float value, const std::string& dtype) {
  if (dtype == "I64") {
    const auto integer = static_cast<int64_t>(value);
    std::string bytes(sizeof integer, '\0');
    std::memcpy(bytes.data(), &integer, sizeof integer);
    return bytes;
  }
  if (dtype == "I8") return {static_cast<char>(static_cast<int8_t>(value))};
  std::string bytes(dtype == "F32" ? 4 : 2, '\0');
  const uint16_t narrow = dtype == "BF16" ? ToBf16(value) : dtype == "F16" ? ToHalf(value) : 0;
  std::memcpy(bytes.data(), dtype == "F32" ? static_cast<const void*>(&value) : &narrow,
              bytes.size());
  return bytes;
}

float Rounded(float value, const std::string& dtype) {
  if (dtype == "BF16") return tiny_llama::FromBf16(ToBf16(value));
  if (dtype == "F16") return tiny_llama::FromHalf(ToHalf(value));
  return value;
}

nlohmann::json MakeConfig(const TinyLlamaOptions& o) {
  nlohmann::json config = {{"architectures", {o.architecture}},
                           {"model_type", "llama"},
                           {"hidden_act", "silu"},
                           {"hidden_size", o.hidden},
                           {"intermediate_size", o.intermediate},
                           {"num_hidden_layers", o.layers},
                           {"num_attention_heads", o.heads},
                           {"num_key_value_heads", o.kv_heads},
                           {"vocab_size", o.vocab},
                           {"max_position_embeddings", o.max_positions},
                           {"rms_norm_eps", 1e-5},
                           {"rope_theta", 10000.0},
                           {"rope_scaling", nullptr},
                           {"tie_word_embeddings", o.tied},
                           {"attention_bias", o.attention_bias},
                           {"mlp_bias", o.mlp_bias},
                           {"bos_token_id", 1},
                           {"eos_token_id", 2},
                           {"torch_dtype", o.dtype == "F32"   ? "float32"
                                           : o.dtype == "F16" ? "float16"
                                                              : "bfloat16"}};
  if (o.head_dim != 0) config["head_dim"] = o.head_dim;
  if (!o.rope_scaling.empty()) config["rope_scaling"] = nlohmann::json::parse(o.rope_scaling);
  return config;
}

}  // namespace

// Box-Muller over hashed counters.
TinyTensor tiny_llama::RandomTensor(const std::string& name, std::vector<int64_t> shape,
                                    const std::string& dtype, double mean, double deviation,
                                    uint64_t seed) {
  uint64_t stream = sampling::Finalize(seed + sampling::kRootHash);
  for (const char letter : name)
    stream =
        sampling::Finalize(stream ^ (sampling::kRootHash * static_cast<unsigned char>(letter)));
  const auto uniform = [&](uint64_t i) {
    return (static_cast<double>(sampling::Finalize(stream + i * sampling::kRootHash) >> 12) + 0.5) *
           0x1p-52;
  };
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  TinyTensor tensor{dtype, std::move(shape), std::vector<float>(count)};
  for (size_t i = 0; i < count; ++i) {
    const double normal = std::sqrt(-2 * std::log(uniform(2 * i + 1))) *
                          std::cos(2 * std::numbers::pi * uniform(2 * i + 2));
    tensor.values[i] = Rounded(static_cast<float>(mean + deviation * normal), dtype);
  }
  return tensor;
}

std::string tiny_llama::Serialize(const std::map<std::string, TinyTensor>& tensors) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data += tensor.bytes;
    for (const float value : tensor.values) data += Encode(value, tensor.dtype);
    header[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(uint64_t{text.size()} >> (8 * i) & 255);
  return bytes + text + data;
}

TinyLlama MakeTinyLlama(const TinyLlamaOptions& o) {
  TinyLlama model{o, MakeConfig(o).dump(), {}};
  const int64_t head_dim = o.head_dim != 0 ? o.head_dim : o.hidden / o.heads;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, double mean,
                       double deviation) {
    model.tensors[name] =
        tiny_llama::RandomTensor(name, std::move(shape), o.dtype, mean, deviation, o.seed);
  };
  const auto linear = [&](const std::string& name, int64_t rows, int64_t columns, bool bias) {
    add(name + ".weight", {rows, columns}, 0, 1.5 / std::sqrt(static_cast<double>(columns)));
    if (bias) add(name + ".bias", {rows}, 0, 0.5);
  };
  add("model.embed_tokens.weight", {o.vocab, o.hidden}, 0, 1);
  for (int layer = 0; layer < o.layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    const bool qwen = o.architecture == "Qwen2ForCausalLM";
    add(prefix + "input_layernorm.weight", {o.hidden}, 1, 0.2);
    linear(prefix + "self_attn.q_proj", o.heads * head_dim, o.hidden, qwen || o.attention_bias);
    linear(prefix + "self_attn.k_proj", o.kv_heads * head_dim, o.hidden, qwen || o.attention_bias);
    linear(prefix + "self_attn.v_proj", o.kv_heads * head_dim, o.hidden, qwen || o.attention_bias);
    linear(prefix + "self_attn.o_proj", o.hidden, o.heads * head_dim, o.attention_bias);
    add(prefix + "post_attention_layernorm.weight", {o.hidden}, 1, 0.2);
    linear(prefix + "mlp.gate_proj", o.intermediate, o.hidden, o.mlp_bias);
    linear(prefix + "mlp.up_proj", o.intermediate, o.hidden, o.mlp_bias);
    linear(prefix + "mlp.down_proj", o.hidden, o.intermediate, o.mlp_bias);
  }
  add("model.norm.weight", {o.hidden}, 1, 0.2);
  if (!o.tied) linear("lm_head", o.vocab, o.hidden, false);
  return model;
}

void SetConfig(TinyLlama* model, const std::string& field, const std::string& value) {
  nlohmann::json config = nlohmann::json::parse(model->config);
  config[field] = nlohmann::json::parse(value);
  model->config = config.dump();
}

void ReduceHead(TinyLlama* model, const std::vector<int>& ids) {
  const auto own = model->tensors.find("lm_head.weight");
  const TinyTensor all =
      own != model->tensors.end() ? own->second : model->tensors["model.embed_tokens.weight"];
  const auto rows = static_cast<int64_t>(ids.size()), columns = all.shape[1];
  TinyTensor kept{all.dtype, {rows, columns}, {}}, d2t{"I64", {rows}, {}};
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = all.values.begin() + ids[row] * columns;
    kept.values.insert(kept.values.end(), begin, begin + columns);
    d2t.values.push_back(static_cast<float>(ids[row] - row));
  }
  model->tensors["lm_head.weight"] = kept;
  model->tensors["d2t"] = d2t;
  SetConfig(model, "draft_vocab_size", absl::StrCat(rows));
  SetConfig(model, "tie_word_embeddings", "false");
}

void StoreIntegers(TinyLlama* model) {
  const std::map<std::string, TinyTensor> before = model->tensors;
  for (const auto& [name, tensor] : before) {
    if (tensor.shape.size() != 2) continue;
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    TinyTensor integers{"I8", tensor.shape, tensor.values}, scales{"F32", {rows}, {}};
    for (int64_t row = 0; row < rows; ++row) {
      float* values = integers.values.data() + row * columns;
      float most = 0;
      for (int64_t i = 0; i < columns; ++i) most = std::max(most, std::fabs(values[i]));
      scales.values.push_back(most / 127);
      for (int64_t i = 0; i < columns; ++i) values[i] = std::nearbyint(values[i] / (most / 127));
    }
    model->tensors[name] = integers;
    model->tensors[name + "_scale"] = scales;
  }
}

void WriteTinyLlama(const TinyLlama& model, const std::string& dir) {
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(dir + "/" + name, std::ios::binary) << bytes;
  };
  write("config.json", nlohmann::json::parse(model.config).dump(1));
  const int shards = model.options.shards;
  if (shards == 0) return write("model.safetensors", tiny_llama::Serialize(model.tensors));
  std::vector<std::map<std::string, TinyTensor>> parts(shards);
  nlohmann::json index = {{"metadata", {{"total_size", 0}}},
                          {"weight_map", nlohmann::json::object()}};
  const auto file = [&](int shard) {
    return absl::StrCat("model-", shard + 1, "-of-", shards, ".safetensors");
  };
  int next = 0;
  for (const auto& [name, tensor] : model.tensors) {
    parts[next][name] = tensor;
    index["weight_map"][name] = file(next);
    next = (next + 1) % shards;
  }
  for (int shard = 0; shard < shards; ++shard)
    write(file(shard), tiny_llama::Serialize(parts[shard]));
  write("model.safetensors.index.json", index.dump(1));
}

}  // namespace coppice::test
