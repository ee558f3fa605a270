// Tiny checkpoints of the families that GGUF has, written as files by what its specification and
// the programs that write them say: the logits are those of the double-precision reference.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/gguf_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_gguf.h"

namespace coppice::model {
namespace {

using nlohmann::json;

// The architecture that a file names, by that of the folder.
std::string FileArchitecture(const std::string& architecture) {
  static const std::map<std::string, std::string> kNames = {{"Qwen3ForCausalLM", "qwen3"},
                                                            {"Gemma2ForCausalLM", "gemma2"},
                                                            {"Gemma3ForCausalLM", "gemma3"},
                                                            {"Phi3ForCausalLM", "phi3"}};
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
                                    {"mlp.gate_up_proj", "ffn_up"}});
  return test::GgufNameOf(name);
}

void AddMetadata(const std::string& name, const json& config, test::GgufBuilder* file) {
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

class GgufFamilyTest : public testing::TestWithParam<std::string> {
 protected:
  // The tiny family, with what a file cannot say otherwise as its format assumes it.
  static test::TinyLlama Model() {
    const bool gemma3 = GetParam() == "gemma3";
    test::TinyLlama model = test::MakeTinyFamily(GetParam(), {.layers = gemma3 ? 7 : 4});
    if (!absl::StartsWith(GetParam(), "gemma")) return model;
    test::SetConfig(&model, "query_pre_attn_scalar", "16");  // head_dim
    test::SetConfig(&model, "torch_dtype", "\"bfloat16\"");  // that of the original
    if (gemma3) test::SetConfig(&model, "sliding_window_pattern", "6");
    return model;
  }
  std::string Write(const test::TinyLlama& model) {
    const std::string name = FileArchitecture(model.options.architecture);
    test::GgufBuilder file;
    AddMetadata(name, json::parse(model.config), &file);
    test::SetByteVocabulary(model.options.vocab, &file);
    for (const auto& [own, tensor] : model.tensors) {
      std::vector<float> values = tensor.values;
      if (absl::StartsWith(name, "gemma") && absl::EndsWith(own, "norm.weight")) {
        for (float& value : values) value += 1;
      }
      file.F32Tensor(FileName(name, own), tensor.shape, values);
    }
    dir_.Write("model.gguf", file.Bytes());
    return dir_.File("model.gguf");
  }

  const test::TempDir dir_;
};

TEST_P(GgufFamilyTest, LogitsAreThoseOfTheReference) {
  const test::TinyLlama model = Model();
  auto loaded = LoadForTest({.dir = Write(model), .dtype = "f32", .max_rows = 64});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::vector<TokenId> tokens;
  for (int i = 0; i < 60; ++i)
    tokens.push_back(static_cast<TokenId>(sampling::Finalize(i + 17) % 96));
  const auto logits = loaded->Run(PlanSketch(64).Prefix(tokens, 0, 60, 60).plan);
  ASSERT_TRUE(logits.ok()) << logits.status();
  std::vector<double> rows;
  for (const std::vector<double>& row : ReferenceLogits(model, tokens))
    rows.insert(rows.end(), row.begin(), row.end());
  EXPECT_LT(RelativeError(*logits, rows), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Tiny, GgufFamilyTest,
                         testing::Values("qwen3", "gemma2", "gemma3", "phi3", "phi3_long",
                                         "phi4_mini"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace coppice::model
