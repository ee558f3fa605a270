#include "tests/testing/tiny_gguf.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/block_format.h"
#include "kernels/element.h"
#include "nlohmann/json.hpp"

namespace coppice::test {
namespace {

// The bytes of values in F32, F16 or BF16, which hold them exactly.
std::string Stored(const TinyTensor& tensor) {
  const std::string file = tiny_llama::Serialize({{"x", tensor}});
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  return file.substr(8 + header);
}

uint32_t TypeNumber(const std::string& dtype) {
  return dtype == "F32" ? 0 : dtype == "F16" ? 1 : 30;
}

// The letter that stands for a byte in a byte-level vocabulary, as UTF-8.
std::string Letter(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += !printable(b);
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

}  // namespace

std::string GgufNameOf(const std::string& name) {
  return absl::StrReplaceAll(name, {{"model.embed_tokens", "token_embd"},
                                    {"model.norm", "output_norm"},
                                    {"lm_head", "output"},
                                    {"model.layers.", "blk."},
                                    {"input_layernorm", "attn_norm"},
                                    {"post_attention_layernorm", "ffn_norm"},
                                    {"self_attn.o_proj", "attn_output"},
                                    {"self_attn.q_proj", "attn_q"},
                                    {"self_attn.k_proj", "attn_k"},
                                    {"self_attn.v_proj", "attn_v"},
                                    {"mlp.gate_proj", "ffn_gate"},
                                    {"mlp.up_proj", "ffn_up"},
                                    {"mlp.down_proj", "ffn_down"}});
}

std::vector<float> InterleavedRows(const std::vector<float>& values, int64_t width, int head_dim) {
  std::vector<float> out;
  const auto rows = static_cast<int64_t>(values.size()) / width;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_head = row % head_dim;
    const int64_t from = row - in_head + in_head / 2 + (in_head % 2 == 1 ? head_dim / 2 : 0);
    out.insert(out.end(), values.begin() + from * width, values.begin() + (from + 1) * width);
  }
  return out;
}

void AddStored(const std::string& name, const TinyTensor& tensor, GgufBuilder* file) {
  file->Tensor(name, tensor.shape, TypeNumber(tensor.dtype), Stored(tensor));
}

std::string RandomBlocks(int64_t elements, std::mt19937* random, std::vector<float>* values) {
  std::string bytes;
  std::uniform_int_distribution<int> code(-127, 127);
  for (int64_t i = 0; i < elements; i += 32) {
    const uint16_t scale = kernels::FloatToF16(0.2f / 127 * static_cast<float>(1 + i / 32 % 3));
    bytes += GgufNumber(scale, 2);
    for (int k = 0; k < 32; ++k) bytes.push_back(static_cast<char>(code(*random)));
  }
  values->resize(elements);
  kernels::DecodeBlocks(kernels::DType::kQ8_0, bytes.data(), elements / 32, values->data());
  return bytes;
}

void SetByteVocabulary(int size, GgufBuilder* file) {
  std::vector<std::string> tokens = {"<s>", "</s>"};
  std::vector<int32_t> types = {3, 3};
  for (int i = 2; i < size; ++i) {
    tokens.push_back(i - 2 < 256 ? Letter(i - 2) : absl::StrCat("<", i, ">"));
    types.push_back(1);
  }
  tokens.resize(size);
  types.resize(size);
  file->Text("tokenizer.ggml.model", "gpt2")
      .Text("tokenizer.ggml.pre", "gpt-2")
      .Texts("tokenizer.ggml.tokens", tokens)
      .I32s("tokenizer.ggml.token_type", types)
      .Texts("tokenizer.ggml.merges", {})
      .U32("tokenizer.ggml.bos_token_id", 0)
      .U32("tokenizer.ggml.eos_token_id", 1);
}

GgufBuilder GgufOf(const TinyLlama& model) {
  const TinyLlamaOptions& o = model.options;
  const int head_dim = o.head_dim != 0 ? o.head_dim : o.hidden / o.heads;
  const nlohmann::json config = nlohmann::json::parse(model.config);
  const std::string name = o.architecture == "Qwen2ForCausalLM" ? "qwen2" : "llama";
  const auto key = [&](const char* field) { return absl::StrCat(name, ".", field); };
  GgufBuilder file;
  file.Text("general.architecture", name)
      .U32(key("block_count"), o.layers)
      .U32(key("context_length"), o.max_positions)
      .U32(key("embedding_length"), o.hidden)
      .U32(key("feed_forward_length"), o.intermediate)
      .U32(key("attention.head_count"), o.heads)
      .U32(key("attention.head_count_kv"), o.kv_heads)
      .U32(key("attention.key_length"), head_dim)
      .U32(key("attention.value_length"), head_dim)
      .U32(key("rope.dimension_count"), head_dim)
      .F32(key("attention.layer_norm_rms_epsilon"), config["rms_norm_eps"].get<float>());
  if (config.contains("rope_theta"))
    file.F32(key("rope.freq_base"), config["rope_theta"].get<float>());
  SetByteVocabulary(o.vocab, &file);
  for (const auto& [own, tensor] : model.tensors) {
    TinyTensor stored = tensor;
    if (name == "llama" && (absl::StrContains(own, "q_proj") || absl::StrContains(own, "k_proj"))) {
      const int64_t width = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
      stored.values = InterleavedRows(tensor.values, width, head_dim);
    }
    AddStored(GgufNameOf(own), stored, &file);
  }
  return file;
}

}  // namespace coppice::test
