#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "nlohmann/json.hpp"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// The config of a tiny model with the fields of `patch` replaced (null removes one).
absl::StatusOr<ModelConfig> ReadPatched(const test::TempDir& dir, const std::string& patch,
                                        const std::string& generation = "") {
  json config = json::parse(test::MakeTinyLlama({.heads = 4, .kv_heads = 2}).config);
  config.merge_patch(json::parse(patch));
  dir.Write("config.json", config.dump());
  if (!generation.empty()) dir.Write("generation_config.json", generation);
  return ReadModelConfig(dir.path());
}

ModelConfig Read(const std::string& patch, const std::string& generation = "") {
  const test::TempDir dir;
  auto config = ReadPatched(dir, patch, generation);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

TEST(ModelConfig, ReadsALlamaFolder) {
  const ModelConfig config =
      Read(R"({"tie_word_embeddings": true, "rope_theta": 500000, "torch_dtype": "bfloat16"})");
  EXPECT_EQ(config.vocab_size, 96);
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.intermediate_size, 48);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.max_positions, 256);
  EXPECT_TRUE(config.tied_head);
  EXPECT_FALSE(config.attention_bias || config.output_bias || config.mlp_bias);
  EXPECT_FLOAT_EQ(config.norm_epsilon, 1e-5f);
  EXPECT_EQ(config.rope.theta, 500000);
  EXPECT_EQ(config.rope.head_dim, 8);
  EXPECT_EQ(config.rope.max_positions, 256);
  EXPECT_EQ(config.rope.llama3_factor, 0);
  EXPECT_EQ(config.checkpoint_dtype, kernels::DType::kBF16);
  EXPECT_THAT(config.eos_ids, ElementsAre(2));
}

TEST(ModelConfig, DefaultsOfAbsentFields) {
  const ModelConfig config =
      Read(R"({"num_key_value_heads": null, "rope_theta": null, "torch_dtype": null,
      "tie_word_embeddings": null, "hidden_act": null, "bos_token_id": null, "eos_token_id": null})");
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.rope.theta, 10000);
  EXPECT_FALSE(config.tied_head);
  EXPECT_TRUE(config.eos_ids.empty());
}

TEST(ModelConfig, ExplicitHeadDimNeedNotDivideHiddenSize) {
  EXPECT_EQ(Read(R"({"head_dim": 24, "hidden_size": 30})").head_dim, 24);
}

TEST(ModelConfig, JoinsEndTokensOfBothFiles) {
  const ModelConfig config = Read(R"({"eos_token_id": [2, 5], "bos_token_id": null})",
                                  R"({"eos_token_id": [5, 7], "bos_token_id": 3})");
  EXPECT_THAT(config.eos_ids, ElementsAre(2, 5, 7));
}

TEST(ModelConfig, AHeadOfFewerIdsIsReduced) {
  EXPECT_EQ(Read("{}").draft_vocab_size, 0);
  EXPECT_EQ(Read(R"({"draft_vocab_size": 96})").draft_vocab_size, 0);
  EXPECT_EQ(Read(R"({"draft_vocab_size": 95})").draft_vocab_size, 95);
  EXPECT_EQ(Read(R"({"draft_vocab_size": null, "tie_word_embeddings": true})").draft_vocab_size, 0);
}

TEST(ModelConfig, ReadsRopeScaling) {
  const char* numbers = R"("factor": 8, "low_freq_factor": 1, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192})";
  for (const char* type : {R"("rope_type")", R"("type")"}) {
    const auto rope =
        Read(absl::StrCat(R"({"rope_scaling": {)", type, R"(: "llama3", )", numbers, "}")).rope;
    EXPECT_EQ(rope.llama3_factor, 8);
    EXPECT_EQ(rope.llama3_low_freq_factor, 1);
    EXPECT_EQ(rope.llama3_high_freq_factor, 4);
    EXPECT_EQ(rope.llama3_original_max_positions, 8192);
  }
  EXPECT_EQ(Read(R"({"rope_scaling": {"type": "linear", "factor": 2.5}})").rope.linear_factor, 2.5);
  EXPECT_EQ(
      Read(
          R"({"rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})")
          .rope.theta,
      1e6);
}

TEST(ModelConfig, FamiliesDifferByTheirRow) {
  const ModelConfig llama = Read(R"({"attention_bias": true})");
  EXPECT_TRUE(llama.attention_bias && llama.output_bias);
  const ModelConfig qwen =
      Read(R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": false,
      "sliding_window": 64, "layer_types": ["full_attention", "full_attention"]})");
  EXPECT_TRUE(qwen.attention_bias);
  EXPECT_FALSE(qwen.output_bias);
  const ModelConfig mistral =
      Read(R"({"architectures": ["MistralForCausalLM"], "sliding_window": 4096})");
  EXPECT_FALSE(mistral.attention_bias);
  const test::TempDir dir;  // null is no window, and in a patch it would remove the field
  json config = json::parse(test::MakeTinyLlama({.heads = 4, .kv_heads = 2}).config);
  config.merge_patch(
      {{"architectures", {"MistralForCausalLM"}}, {"max_position_embeddings", 8192}});
  config["sliding_window"] = nullptr;
  dir.Write("config.json", config.dump());
  EXPECT_TRUE(ReadModelConfig(dir.path()).ok());
  // The field is Llama's: it changes nothing in the other families.
  for (const char* bias : {"true", "false"}) {
    const auto read = [&](const char* family) {
      return Read(
          absl::StrCat(R"({"architectures": [")", family, R"("], "attention_bias": )", bias, "}"));
    };
    EXPECT_TRUE(read("Qwen2ForCausalLM").attention_bias) << bias;
    EXPECT_FALSE(read("Qwen2ForCausalLM").output_bias) << bias;
    EXPECT_FALSE(read("MistralForCausalLM").attention_bias) << bias;
    EXPECT_FALSE(read("MistralForCausalLM").output_bias) << bias;
  }
}

struct BadConfig {
  const char* name;
  const char* patch;
  const char* message;  // after "DIR/config.json: "
};

class BadModelConfig : public testing::TestWithParam<BadConfig> {};

TEST_P(BadModelConfig, NamesFileFieldAndExpectation) {
  const test::TempDir dir;
  const absl::Status status = ReadPatched(dir, GetParam().patch).status();
  EXPECT_EQ(std::string(status.message()),
            absl::StrCat(dir.File("config.json"), ": ", GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadModelConfig,
    testing::Values(
        BadConfig{"Architecture", R"({"architectures": ["OPTForCausalLM"]})",
                  "architectures: OPTForCausalLM is not served yet (LlamaForCausalLM, "
                  "MistralForCausalLM, "
                  "Qwen2ForCausalLM are)"},
        BadConfig{"NoArchitecture", R"({"architectures": null})",
                  "architectures: expected a list of one name"},
        BadConfig{"ArchitectureType", R"({"architectures": "LlamaForCausalLM"})",
                  "architectures: \"LlamaForCausalLM\", expected a list of strings"},
        BadConfig{"MissingHiddenSize", R"({"hidden_size": null})",
                  "hidden_size: missing, expected an integer from 1 to 1048576"},
        BadConfig{"TextLayers", R"({"num_hidden_layers": "two"})",
                  "num_hidden_layers: \"two\", expected an integer from 1 to 4096"},
        BadConfig{"FractionalHeads", R"({"num_attention_heads": 4.5})",
                  "num_attention_heads: 4.5, expected an integer from 1 to 65536"},
        BadConfig{"ZeroVocabulary", R"({"vocab_size": 0})",
                  "vocab_size: 0, expected an integer from 1 to 16777216"},
        BadConfig{"NegativeIntermediate", R"({"intermediate_size": -1})",
                  "intermediate_size: -1, expected an integer from 1 to 4194304"},
        BadConfig{"HugePositions", R"({"max_position_embeddings": 18446744073709551615})",
                  "max_position_embeddings: 18446744073709551615, expected an integer from 1 to "
                  "16777216"},
        BadConfig{"HeadsNotMultiple", R"({"num_key_value_heads": 3})",
                  "num_attention_heads: 4, expected a multiple of num_key_value_heads (3)"},
        BadConfig{"HiddenNotMultiple", R"({"hidden_size": 30})",
                  "hidden_size: 30, expected a multiple of num_attention_heads (4) since head_dim "
                  "is not given"},
        BadConfig{"OddHeadDim", R"({"head_dim": 7})",
                  "head_dim: 7, expected an even number (rotary pairs)"},
        BadConfig{"Activation", R"({"hidden_act": "gelu"})", "hidden_act: gelu, expected silu"},
        BadConfig{"TextBias", R"({"attention_bias": "no"})",
                  "attention_bias: \"no\", expected true or false"},
        BadConfig{"EmptyHead", R"({"draft_vocab_size": 0})",
                  "draft_vocab_size: 0, expected an integer from 1 to 96"},
        BadConfig{"HeadOfMoreThanTheVocabulary", R"({"draft_vocab_size": 97})",
                  "draft_vocab_size: 97, expected an integer from 1 to 96"},
        BadConfig{"TiedDraftVocabulary", R"({"draft_vocab_size": 40, "tie_word_embeddings": true})",
                  "tie_word_embeddings: true, expected false since draft_vocab_size (40) is less "
                  "than vocab_size (96)"},
        BadConfig{"Epsilon", R"({"rms_norm_eps": null})",
                  "rms_norm_eps: missing, expected a positive number"},
        BadConfig{"Theta", R"({"rope_theta": -10000})",
                  "rope_theta: -10000, expected a positive number"},
        BadConfig{"DType", R"({"torch_dtype": "float64"})",
                  "torch_dtype: float64, expected float32, float16 or bfloat16"},
        BadConfig{"RopeType", R"({"rope_scaling": {"rope_type": "yarn", "factor": 2}})",
                  "rope_scaling.rope_type: yarn is not served yet (default, linear, llama3 are)"},
        BadConfig{"OldRopeType", R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
                  "rope_scaling.type: dynamic is not served yet (default, linear, llama3 are)"},
        BadConfig{"NoRopeType", R"({"rope_scaling": {"factor": 2}})",
                  "rope_scaling.rope_type: missing, expected a string"},
        BadConfig{"RopeScalingType", R"({"rope_scaling": 2})",
                  "rope_scaling: 2, expected an object"},
        BadConfig{"Llama3Incomplete", R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
                  "rope_scaling.low_freq_factor: missing, expected a positive number"},
        BadConfig{"Llama3Factors",
                  R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                  "high_freq_factor": 4, "original_max_position_embeddings": 64}})",
                  "rope_scaling.high_freq_factor: 4, expected more than low_freq_factor (4)"},
        BadConfig{"SlidingWindow",
                  R"({"architectures": ["MistralForCausalLM"], "sliding_window": 128})",
                  "sliding_window: 128, is not served yet, expected null or at least "
                  "max_position_embeddings (256)"},
        BadConfig{"AbsentSlidingWindow",
                  R"({"architectures": ["MistralForCausalLM"], "max_position_embeddings": 4097})",
                  "sliding_window: absent, which means 4096, is not served yet, expected null or "
                  "at least max_position_embeddings (4097)"},
        BadConfig{"LayerTypes", R"({"layer_types": ["sliding_attention"]})",
                  "layer_types: sliding_attention, expected full_attention"},
        BadConfig{"Quantised", R"({"quantization_config": {"bits": 4}})",
                  "quantization_config: quantised checkpoints are not served yet, expected none"},
        BadConfig{"EndToken", R"({"eos_token_id": 96})",
                  "eos_token_id: 96, expected an integer from 0 to 95 or a list of them"},
        BadConfig{"EndTokenType", R"({"eos_token_id": [2, "x"]})",
                  "eos_token_id: [2,\"x\"], expected an integer from 0 to 95 or a list of them"}),
    [](const auto& info) { return info.param.name; });

TEST(ModelConfig, BadFilesAreNamed) {
  const test::TempDir dir;
  EXPECT_THAT(std::string(ReadModelConfig(dir.File("nowhere")).status().message()),
              EndsWith("nowhere: no such folder or file, expected a Hugging Face model folder or a "
                       "GGUF file"));
  dir.Write("a.gguf", "PK\x03\x04");
  EXPECT_THAT(std::string(ReadModelConfig(dir.File("a.gguf")).status().message()),
              EndsWith("a.gguf: begins with 'PK\\x03\\x04', expected a GGUF file"));
  EXPECT_THAT(std::string(ReadModelConfig(dir.path()).status().message()),
              StartsWith(dir.File("config.json") + ": cannot be opened"));
  ASSERT_EQ(mkfifo(dir.File("config.json").c_str(), 0600), 0);
  EXPECT_THAT(std::string(ReadModelConfig(dir.path()).status().message()),
              EndsWith("config.json: not a regular file but a pipe"));
  std::filesystem::remove(dir.File("config.json"));
  dir.Write("config.json", "");
  std::filesystem::resize_file(dir.File("config.json"), uint64_t{6} << 30);
  EXPECT_THAT(std::string(ReadModelConfig(dir.path()).status().message()),
              EndsWith("config.json: 6442450944 bytes, expected at most 16777216"));
  dir.Write("config.json", "{\"hidden_size\": ");
  EXPECT_THAT(std::string(ReadModelConfig(dir.path()).status().message()),
              EndsWith("config.json: not valid JSON (16 bytes)"));
  dir.Write("config.json", "[1]");
  EXPECT_THAT(std::string(ReadModelConfig(dir.path()).status().message()),
              EndsWith("config.json: expected a JSON object, found array"));
  EXPECT_THAT(ReadPatched(dir, "{}", R"({"eos_token_id": -2})").status().message(),
              HasSubstr("generation_config.json: eos_token_id: -2, expected"));
}

}  // namespace
}  // namespace coppice::model
