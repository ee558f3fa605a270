// A small Llama checkpoint with seeded random weights, written as a Hugging Face folder. A test may
// change its config or tensors before it is written.
//   TempDir dir;
//   WriteTinyLlama(MakeTinyLlama({.layers = 3, .tied = true}), dir.path());
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace coppice::test {

struct TinyLlamaOptions {
  int hidden = 32;
  int layers = 2;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 0;  // 0: hidden / heads, and not written in config.json
  int intermediate = 48;
  int vocab = 96;
  int max_positions = 256;
  std::string dtype = "F32";  // F32, F16 or BF16
  bool tied = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  int shards = 0;  // 0: model.safetensors; n: n files and an index
  std::string architecture = "LlamaForCausalLM";
  std::string rope_scaling;  // JSON, "" = null
  uint64_t seed = 1;
};

struct TinyTensor {
  std::string dtype;  // as in the options, I64 or I8
  std::vector<int64_t> shape;
  std::vector<float> values;  // as stored: rounded to dtype
  std::string bytes = {};     // not empty: the stored data, of any dtype, instead of values
};

struct TinyLlama {
  TinyLlamaOptions options;
  std::string config;  // JSON
  std::map<std::string, TinyTensor> tensors;
};

namespace tiny_llama {

// The value of two stored bytes.
float FromBf16(uint16_t bits);
float FromHalf(uint16_t bits);
// Values mean + deviation * N(0, 1), which depend on name and seed alone.
TinyTensor RandomTensor(const std::string& name, std::vector<int64_t> shape,
                        const std::string& dtype, double mean, double deviation, uint64_t seed);
// One safetensors file with these tensors, as bytes.
std::string Serialize(const std::map<std::string, TinyTensor>& tensors);

}  // namespace tiny_llama

TinyLlama MakeTinyLlama(const TinyLlamaOptions& o);

// value: JSON.
void SetConfig(TinyLlama* model, const std::string& field, const std::string& value);

// Leaves the head of these ids alone, ascending: a draft vocabulary with its d2t. A tied head
// becomes one of its own.
void ReduceHead(TinyLlama* model, const std::vector<int>& ids);

// Keeps each matrix as 8-bit integers, I8, with a scale for each row, F32.
void StoreIntegers(TinyLlama* model);

// Writes config.json and the safetensors file, or its shards (round robin by name) and index, into
// a folder that exists.
void WriteTinyLlama(const TinyLlama& model, const std::string& dir);

}  // namespace coppice::test
