#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "kernels/rope_table.h"
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
  ASSERT_EQ(config.ropes.size(), 1u);
  EXPECT_EQ(config.ropes[0].frequencies, kernels::PlainFrequencies(8, 500000));
  EXPECT_EQ(config.ropes[0].max_positions, 256);
  EXPECT_EQ(config.ropes[0].scale, 1);
  EXPECT_EQ(config.checkpoint_dtype, kernels::DType::kBF16);
  EXPECT_THAT(config.eos_ids, ElementsAre(2));
}

TEST(ModelConfig, DefaultsOfAbsentFields) {
  const ModelConfig config =
      Read(R"({"num_key_value_heads": null, "rope_theta": null, "torch_dtype": null,
      "tie_word_embeddings": null, "hidden_act": null, "bos_token_id": null, "eos_token_id": null})");
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.ropes[0].frequencies, kernels::PlainFrequencies(8, 10000));
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

// Frequencies of Llama 3.1: those of transformers' _compute_llama3_parameters.
TEST(ModelConfig, Llama3ScalingKeepsShortBlendsMiddleStretchesLongWavelengths) {
  for (const char* type : {R"("rope_type")", R"("type")"}) {
    const std::vector<double> frequencies =
        Read(absl::StrCat(R"({"head_dim": 128, "rope_theta": 500000, "rope_scaling": {)", type,
                          R"(: "llama3", "factor": 8, "low_freq_factor": 1,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})"))
            .ropes[0]
            .frequencies;
    const std::pair<int, double> expected[] = {{0, 1.0},
                                               {10, 0.12868737343265052},
                                               {28, 0.0032114459947525913},
                                               {29, 0.002166570763503359},
                                               {31, 0.0008567514129196321},
                                               {34, 0.00017850781276799638},
                                               {35, 9.556212353964683e-05},
                                               {63, 3.068925988914511e-07}};
    for (const auto& [pair, frequency] : expected)
      EXPECT_NEAR(frequencies[pair] / frequency, 1.0, 1e-12) << pair;
  }
}

TEST(ModelConfig, ReadsRopeScaling) {
  const auto frequency = [](const char* patch) { return Read(patch).ropes[0].frequencies[1]; };
  const double plain = kernels::PlainFrequencies(8, 10000)[1];
  EXPECT_EQ(frequency(R"({"rope_scaling": {"type": "linear", "factor": 2.5}})"), plain / 2.5);
  EXPECT_EQ(frequency(R"({"rope_scaling": {"type": "dynamic", "factor": 4}})"), plain);
  EXPECT_EQ(
      frequency(
          R"({"rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})"),
      kernels::PlainFrequencies(8, 1e6)[1]);
  // YaRN makes the context longer.
  const ModelConfig yarn = Read(
      R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 128}})");
  EXPECT_EQ(yarn.max_positions, 512);
  EXPECT_EQ(yarn.ropes[0].max_positions, 512);
  // Layers of two kinds may have positions of their own, also in the newer form.
  const ModelConfig gemma =
      Read(R"({"architectures": ["Gemma3ForCausalLM"], "head_dim": 8, "rope_theta": null,
               "rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 1e6,
               "factor": 8}, "sliding_attention": {"rope_type": "default", "rope_theta": 500}}})");
  EXPECT_EQ(gemma.ropes[0].frequencies[1], kernels::PlainFrequencies(8, 1e6)[1] / 8);
  EXPECT_EQ(gemma.ropes[1].frequencies[1], kernels::PlainFrequencies(8, 500)[1]);
}

TEST(ModelConfig, ReadsWindows) {
  const auto windows = [](const char* patch) {
    std::vector<int> list;
    for (const LayerParts& layer : Read(patch).layers) list.push_back(layer.window);
    return list;
  };
  EXPECT_THAT(windows(R"({"architectures": ["MistralForCausalLM"], "sliding_window": 40})"),
              ElementsAre(40, 40));
  EXPECT_THAT(windows(R"({"architectures": ["MistralForCausalLM"], "sliding_window": 256})"),
              ElementsAre(0, 0));
  // Absent: what Transformers assumes.
  EXPECT_THAT(windows(R"({"architectures": ["MistralForCausalLM"],
                          "max_position_embeddings": 8192})"),
              ElementsAre(4096, 4096));
  EXPECT_THAT(windows(R"({"architectures": ["Phi3ForCausalLM"], "sliding_window": 47})"),
              ElementsAre(47, 47));
  EXPECT_THAT(windows(R"({"architectures": ["Phi3ForCausalLM"]})"), ElementsAre(0, 0));
  EXPECT_THAT(windows(R"({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64,
                          "max_window_layers": 0})"),
              ElementsAre(0, 0));
  EXPECT_THAT(windows(R"({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64,
                          "use_sliding_window": true, "max_window_layers": 1})"),
              ElementsAre(0, 64));
  EXPECT_THAT(windows(R"({"architectures": ["Gemma2ForCausalLM"], "sliding_window": 64})"),
              ElementsAre(64, 0));
  EXPECT_THAT(windows(R"({"architectures": ["Gemma3ForCausalLM"], "sliding_window": 64,
                          "layer_types": ["full_attention", "sliding_attention"]})"),
              ElementsAre(0, 64));
}

TEST(ModelConfig, FamiliesDifferByTheirDescription) {
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

// What Transformers assumes where config.json does not say.
TEST(ModelConfig, AbsentFieldsAreThoseOfTheFamily) {
  const ModelConfig gemma2 = Read(R"({"architectures": ["Gemma2ForCausalLM"]})");
  EXPECT_EQ(gemma2.attention_softcap, 50);
  EXPECT_EQ(gemma2.logit_softcap, 30);
  EXPECT_EQ(Read(R"({"architectures": ["Gemma3ForCausalLM"]})").logit_softcap, 0);
  EXPECT_TRUE(
      Read(R"({"architectures": ["SmolLM3ForCausalLM"], "tie_word_embeddings": null})").tied_head);
  const auto first = [](const char* patch) { return Read(patch).ropes[0].frequencies[1]; };
  EXPECT_EQ(first(R"({"architectures": ["SmolLM3ForCausalLM"], "rope_theta": null})"),
            kernels::PlainFrequencies(8, 2e6)[1]);
  EXPECT_EQ(first(R"({"architectures": ["MixtralForCausalLM"], "rope_theta": null,
                      "num_local_experts": 4, "num_experts_per_tok": 2})"),
            kernels::PlainFrequencies(8, 1e6)[1]);
  // NeoX has as many KV heads as heads, whatever the fields say.
  const ModelConfig neox = Read(
      R"({"architectures": ["GPTNeoXForCausalLM"], "num_key_value_heads": 1, "head_dim": 64,
          "rotary_pct": 1})");
  EXPECT_EQ(neox.num_kv_heads, 4);
  EXPECT_EQ(neox.head_dim, 8);
}

// The original length of the model counts before that of the scaling, and positions of one kind
// may make the context of all longer.
TEST(ModelConfig, ScalingsReadTheWholeModel) {
  EXPECT_EQ(Read(R"({"original_max_position_embeddings": 64, "rope_scaling": {"type": "yarn",
                     "factor": 8, "original_max_position_embeddings": 128}})")
                .max_positions,
            512);
  const ModelConfig gemma =
      Read(R"({"architectures": ["Gemma3ForCausalLM"], "head_dim": 8, "rope_parameters": {
               "full_attention": {"rope_type": "default"}, "sliding_attention":
               {"rope_type": "yarn", "factor": 4}}})");
  EXPECT_EQ(gemma.max_positions, 1024);
  EXPECT_EQ(gemma.ropes[0].max_positions, 1024);
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
        BadConfig{"Architecture", R"({"architectures": ["BloomForCausalLM"]})",
                  "architectures: BloomForCausalLM is not served yet (LlamaForCausalLM, "
                  "MistralForCausalLM, MixtralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "
                  "Qwen3MoeForCausalLM, GraniteForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, "
                  "OPTForCausalLM, SmolLM3ForCausalLM, Phi3ForCausalLM, Olmo2ForCausalLM, "
                  "GPTNeoXForCausalLM, LlamaForCausalLMEagle3, Eagle3LlamaForCausalLM, "
                  "Eagle3Speculator, Eagle3DraftModel, DFlashDraftModel, Qwen3DSparkModel are)"},
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
        BadConfig{"Activation", R"({"hidden_act": "mish"})",
                  "hidden_act: mish, expected silu, gelu, gelu_new, gelu_pytorch_tanh or relu"},
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
        BadConfig{"RopeType", R"({"rope_scaling": {"rope_type": "alibi", "factor": 2}})",
                  "rope_scaling.rope_type: alibi, expected default, linear, dynamic, llama3, yarn "
                  "or longrope"},
        BadConfig{"LongRopeDivisors",
                  R"({"architectures": ["Phi3ForCausalLM"], "rope_scaling": {"type": "longrope",
                  "short_factor": [1, 1]}})",
                  "rope_scaling.short_factor: 2 numbers, expected 4, one a rotated pair"},
        BadConfig{"LongRopeNegative",
                  R"({"architectures": ["Phi3ForCausalLM"], "rope_scaling": {"type": "longrope",
                  "short_factor": [1, 1, -1, 1]}})",
                  "rope_scaling.short_factor: [1,1,-1,1], expected a list of positive numbers"},
        BadConfig{"PartialRotary", R"({"partial_rotary_factor": 1.5})",
                  "partial_rotary_factor: 1.5, expected a part of head_dim (8), at most 1"},
        BadConfig{
            "OddPartialRotary", R"({"partial_rotary_factor": 0.4})",
            "partial_rotary_factor: 0.4, so that 3 dimensions rotate, expected an even number "
            "(rotary pairs)"},
        BadConfig{"OptWithoutItsNorm",
                  R"({"architectures": ["OPTForCausalLM"], "ffn_dim": 48,
                  "_remove_final_layer_norm": true})",
                  "_remove_final_layer_norm: true is not served yet, expected false"},
        BadConfig{"NoRopeLayers",
                  R"({"architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1]})",
                  "no_rope_layers: 1 entries, expected 2 as num_hidden_layers says"},
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
        BadConfig{"LayerTypes", R"({"layer_types": ["full_attention", "linear_attention"]})",
                  "layer_types: linear_attention, expected full_attention or sliding_attention"},
        BadConfig{"FewLayerTypes",
                  R"({"architectures": ["MistralForCausalLM"], "layer_types": ["full_attention"]})",
                  "layer_types: 1 entries, expected 2 as num_hidden_layers says"},
        BadConfig{"LayerTypesWithoutWindow",
                  R"({"layer_types": ["full_attention", "sliding_attention"]})",
                  "layer_types: layer 1 is sliding_attention, but LlamaForCausalLM has no window "
                  "there"},
        BadConfig{"MixedLayerTypes",
                  R"({"architectures": ["MistralForCausalLM"], "sliding_window": 64,
                  "layer_types": ["full_attention", "sliding_attention"]})",
                  "layer_types: full_attention and sliding_attention, expected one kind, as "
                  "MistralForCausalLM has"},
        BadConfig{
            "Bidirectional",
            R"({"architectures": ["Gemma3ForCausalLM"], "use_bidirectional_attention": true})",
            "use_bidirectional_attention: true is not served yet, expected false"},
        BadConfig{"Quantised", R"({"quantization_config": {"bits": 4}})",
                  "quantization_config.quant_method: missing, expected a string"},
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
