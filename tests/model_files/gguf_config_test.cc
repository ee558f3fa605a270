// The config.json of each architecture, and metadata that cannot be served.
#include "model_files/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "tests/model_files/sample_gguf.h"
#include "tests/testing/temp_dir.h"

namespace coppice::model_files {
namespace {

using Json = nlohmann::json;
using test::GgufBuilder;

class GgufConfigTest : public testing::Test {
 protected:
  absl::StatusOr<Json> Read(const GgufBuilder& builder) {
    dir_.Write("F.gguf", builder.Bytes());
    const auto file = GgufFile::Open(dir_.File("F.gguf"));
    if (!file.ok()) return file.status();
    return GgufConfig(*file);
  }
  Json Config(const GgufBuilder& builder) {
    const auto config = Read(builder);
    EXPECT_TRUE(config.ok()) << config.status();
    return config.value_or(Json());
  }
  std::string Refusal(const GgufBuilder& builder) {
    const std::string text(Read(builder).status().message());
    const std::string before = dir_.path() + "/F.gguf: ";
    return text.rfind(before, 0) == 0 ? text.substr(before.size()) : text;
  }
  test::TempDir dir_;
};

// What every architecture has.
Json Common() {
  return {{"vocab_size", 10},         {"hidden_size", 64},
          {"intermediate_size", 96},  {"num_hidden_layers", 2},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"head_dim", 16},           {"max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-6},     {"rope_theta", 1e6},
          {"torch_dtype", "float32"}, {"tie_word_embeddings", true},
          {"bos_token_id", 0},        {"eos_token_id", 1}};
}

Json With(Json fields) {
  Json config = Common();
  config.update(fields);
  return config;
}

TEST_F(GgufConfigTest, OfALlama) {
  GgufBuilder file = SampleGguf("llama");
  const Json fields = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"hidden_act", "silu"},
                       {"attention_bias", false},
                       {"mlp_bias", false}};
  EXPECT_EQ(Config(file), With(fields));
  Json other = With(fields);
  other["tie_word_embeddings"] = false;
  other["attention_bias"] = true;
  other["head_dim"] = 32;
  file.F32Tensor("output.weight", {1}, {0}).F32Tensor("blk.0.attn_k.bias", {1}, {0});
  file.U32("llama.attention.key_length", 32).U32("llama.attention.value_length", 32);
  EXPECT_EQ(Config(file), other);
}

TEST_F(GgufConfigTest, OfQwen) {
  for (const auto& [name, architecture] :
       {std::pair("qwen2", "Qwen2ForCausalLM"), {"qwen3", "Qwen3ForCausalLM"}}) {
    EXPECT_EQ(Config(SampleGguf(name)), With({{"architectures", {architecture}},
                                              {"model_type", name},
                                              {"hidden_act", "silu"},
                                              {"use_sliding_window", false}}));
  }
}

// What SampleGguf says beside.
GgufBuilder Mixture(const std::string& name) {
  GgufBuilder file = SampleGguf(name);
  return file.U32(name + ".expert_count", 8).U32(name + ".expert_used_count", 2);
}

TEST_F(GgufConfigTest, OfMixturesOfExperts) {
  EXPECT_EQ(Config(Mixture("llama")), With({{"architectures", {"MixtralForCausalLM"}},
                                            {"model_type", "mixtral"},
                                            {"hidden_act", "silu"},
                                            {"sliding_window", nullptr},
                                            {"num_local_experts", 8},
                                            {"num_experts_per_tok", 2}}));
  Json fields = {{"architectures", {"Qwen3MoeForCausalLM"}},
                 {"model_type", "qwen3_moe"},
                 {"hidden_act", "silu"},
                 {"use_sliding_window", false},
                 {"num_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"norm_topk_prob", true},
                 {"moe_intermediate_size", 24}};
  GgufBuilder file = Mixture("qwen3moe");
  EXPECT_EQ(Config(file.U32("qwen3moe.expert_feed_forward_length", 24)), With(fields));
  fields["moe_intermediate_size"] = 48;  // without the key: what the chosen experts share
  EXPECT_EQ(Config(Mixture("qwen3moe")), With(fields));
}

TEST_F(GgufConfigTest, NamesWhatIsNotServedOfMixtures) {
  EXPECT_EQ(Refusal(SampleGguf("qwen2").U32("qwen2.expert_count", 8)),
            "key qwen2.expert_count: 8: this architecture is served without experts");
  EXPECT_EQ(Refusal(SampleGguf("qwen3moe")),
            "key qwen3moe.expert_count: missing or 0, expected the number of experts");
  EXPECT_EQ(Refusal(SampleGguf("llama").U32("llama.expert_count", 8)),
            "key llama.expert_used_count: missing");
  EXPECT_EQ(Refusal(Mixture("llama").U32("llama.expert_used_count", 9)),
            "key llama.expert_used_count: 9, expected an integer from 1 to 8");
  EXPECT_EQ(Refusal(Mixture("llama").U32("llama.expert_feed_forward_length", 24)),
            "key llama.expert_feed_forward_length: 24, expected an integer from 96 to 96");
  EXPECT_EQ(Refusal(Mixture("llama").U32("llama.expert_gating_func", 2)),
            "key llama.expert_gating_func: 2, expected an integer from 1 to 1");
  EXPECT_EQ(Refusal(Mixture("qwen3moe").U32("qwen3moe.expert_shared_count", 1)),
            "key qwen3moe.expert_shared_count: 1, expected an integer from 0 to 0");
  EXPECT_EQ(Refusal(Mixture("qwen3moe").Bool("qwen3moe.expert_weights_norm", false)),
            "key qwen3moe.expert_weights_norm: false, expected true: the shares of the chosen "
            "experts sum to 1");
  EXPECT_EQ(Refusal(Mixture("llama").F32Tensor("blk.1.ffn_up_shexp.weight", {1}, {0})),
            "tensor blk.1.ffn_up_shexp.weight: not served in a mixture of experts");
}

TEST_F(GgufConfigTest, OfPhi3) {
  GgufBuilder file = SampleGguf("phi3");
  Json fields = {{"architectures", {"Phi3ForCausalLM"}},
                 {"model_type", "phi3"},
                 {"hidden_act", "silu"},
                 {"sliding_window", nullptr}};
  EXPECT_EQ(Config(file), With(fields));
  file.U32("phi3.attention.sliding_window", 2047).U32("phi3.rope.dimension_count", 12);
  fields["sliding_window"] = 2047;
  fields["partial_rotary_factor"] = 0.75;
  EXPECT_EQ(Config(file), With(fields));
  file.U32("phi3.attention.sliding_window", 262144);  // longer than the context
  EXPECT_EQ(Config(file)["sliding_window"], Json());
}

TEST_F(GgufConfigTest, OfGemma) {
  GgufBuilder two = SampleGguf("gemma2");
  two.U32("gemma2.attention.sliding_window", 1024).F32("gemma2.attn_logit_softcapping", 40);
  EXPECT_EQ(Config(two), With({{"architectures", {"Gemma2ForCausalLM"}},
                               {"model_type", "gemma2"},
                               {"hidden_activation", "gelu_pytorch_tanh"},
                               {"torch_dtype", "bfloat16"},
                               {"query_pre_attn_scalar", 16},
                               {"sliding_window", 1024},
                               {"attn_logit_softcapping", 40.0},
                               {"final_logit_softcapping", 30.0},
                               {"layer_types", {"sliding_attention", "full_attention"}}}));
  GgufBuilder three = SampleGguf("gemma3");
  three.U32("gemma3.attention.sliding_window", 512).U32("gemma3.block_count", 7);
  const Json config = Config(three);
  EXPECT_EQ(config["architectures"], Json({"Gemma3ForCausalLM"}));
  EXPECT_EQ(config["rope_local_base_freq"], 10000.0);
  EXPECT_EQ(config.count("attn_logit_softcapping"), 0u);
  EXPECT_EQ(config["layer_types"][4], "sliding_attention");
  EXPECT_EQ(config["layer_types"][5], "full_attention");
  EXPECT_EQ(config["layer_types"][6], "sliding_attention");
}

// The sizes whose scores are scaled by the width of all heads, and not by the size of one.
TEST_F(GgufConfigTest, OfTheLargestGemmas) {
  for (const auto& [name, layers] : {std::pair("gemma2", 46), {"gemma3", 62}}) {
    GgufBuilder file = SampleGguf(name);
    file.U32(absl::StrCat(name, ".attention.sliding_window"), 512);
    file.U32(absl::StrCat(name, ".block_count"), layers);
    file.U32(absl::StrCat(name, ".attention.key_length"), 32);
    EXPECT_EQ(Config(file)["query_pre_attn_scalar"], 16) << name;
    file.U32(absl::StrCat(name, ".block_count"), layers - 1);
    EXPECT_EQ(Config(file)["query_pre_attn_scalar"], 32) << name;
  }
}

TEST_F(GgufConfigTest, NamesWhatIsNotServed) {
  EXPECT_EQ(Refusal(SampleGguf("mamba")),
            "key general.architecture: mamba is not served yet (llama, qwen2, qwen3, "
            "qwen3moe, gemma2, gemma3, phi3 are)");
  EXPECT_EQ(Refusal(SampleGguf("llama").U32("llama.attention.head_count_kv", 3)),
            "key llama.attention.head_count: 4 heads, 3 KV heads and a width of 64 do not fit "
            "together");
  EXPECT_EQ(Refusal(SampleGguf("llama").U32("llama.rope.dimension_count", 8)),
            "key llama.rope.dimension_count: 8, expected an integer from 16 to 16");
  EXPECT_EQ(Refusal(SampleGguf("llama").U32("llama.attention.value_length", 8)),
            "key llama.attention.value_length: 8, expected an integer from 16 to 16");
  EXPECT_EQ(Refusal(SampleGguf("llama").Remove("llama.block_count")),
            "key llama.block_count: missing");
  EXPECT_EQ(Refusal(SampleGguf("llama").U32("tokenizer.ggml.eos_token_id", 8)),
            "key tokenizer.ggml.eos_token_id: 8, expected less than 8, the tokens");
  EXPECT_EQ(Refusal(SampleGguf("gemma2")), "key gemma2.attention.sliding_window: missing");
  EXPECT_EQ(Refusal(SampleGguf("llama").RemoveTensor("token_embd.weight")),
            "tensor token_embd.weight: missing");
  GgufBuilder few = SampleGguf("llama");
  few.F32Tensor("token_embd.weight", {7, 64}, std::vector<float>(448));
  EXPECT_EQ(Refusal(few),
            "tensor token_embd.weight: [7, 64], expected [8, 64] or more rows, one for each token");
}

}  // namespace
}  // namespace coppice::model_files
