// The configuration of block drafters: what is read of the published ones, and what is refused
// by the name of its field or tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_dflash.h"

namespace coppice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The fields of z-lab's drafter of Qwen3-4B.
constexpr char kDFlash[] = R"({
  "architectures": ["DFlashDraftModel"], "attention_bias": false, "block_size": 16,
  "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
  "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
  "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 2560, "intermediate_size": 9728, "max_position_embeddings": 40960,
  "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention",
                  "full_attention"],
  "max_window_layers": 5, "model_type": "qwen3", "num_attention_heads": 32,
  "num_hidden_layers": 5, "num_key_value_heads": 8, "num_target_layers": 36,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})";

// Those of DeepSpec's for the same target.
constexpr char kDSpark[] = R"({
  "architectures": ["Qwen3DSparkModel"], "attention_bias": false, "block_size": 7,
  "confidence_head_with_markov": true, "enable_confidence_head": true, "dtype": "bfloat16",
  "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560, "intermediate_size": 9728,
  "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention",
                  "full_attention"],
  "markov_head_type": "vanilla", "markov_rank": 256, "mask_token_id": 151669,
  "max_position_embeddings": 40960, "model_type": "qwen3", "num_anchors": 512,
  "num_attention_heads": 32, "num_hidden_layers": 5, "num_key_value_heads": 8,
  "num_target_layers": 36, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
  "target_layer_ids": [1, 9, 17, 25, 33], "tie_word_embeddings": false, "vocab_size": 151936})";

absl::StatusOr<ModelConfig> Read(const std::string& text) {
  auto json = JsonFile::Parse("config.json", text);
  if (!json.ok()) return json.status();
  return ReadModelConfig(*json);
}
// The text with `old` replaced, which must be there.
std::string With(std::string text, const std::string& old, const std::string& now) {
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return at == std::string::npos ? text : text.replace(at, old.size(), now);
}
std::string Refusal(const std::string& text) {
  const auto config = Read(text);
  return config.ok() ? "accepted" : std::string(config.status().message());
}

TEST(DFlashConfig, ReadsThePublishedFields) {
  const auto config = Read(kDFlash);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->states.use, TargetStates::Use::kContext);
  EXPECT_THAT(config->states.layers, ElementsAre(1, 9, 17, 25, 33));
  EXPECT_EQ(config->states.size, 2560);
  EXPECT_EQ(config->block.size, 16);
  EXPECT_EQ(config->block.mask, 151669);
  EXPECT_TRUE(config->block.in_place);
  EXPECT_EQ(config->block.depth(), 15);
  EXPECT_EQ(config->block.markov_rank, 0);
  EXPECT_TRUE(config->qk_norm);
}

TEST(DFlashConfig, ABlockOfDSparkPredictsOneTokenMore) {
  const auto config = Read(kDSpark);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->states.use, TargetStates::Use::kContext);
  EXPECT_FALSE(config->block.in_place);
  EXPECT_EQ(config->block.depth(), 7);
  EXPECT_EQ(config->block.markov_rank, 256);
}

TEST(DFlashConfig, ReadsFieldsInsideAndBesideTheObject) {
  const auto inside = Read(With(With(kDFlash, R"("block_size": 16,)", ""), R"("mask_token_id")",
                                R"("block_size": 8, "markov_rank": 4, "mask_token_id")"));
  ASSERT_TRUE(inside.ok()) << inside.status();
  EXPECT_EQ(inside->block.size, 8);
  EXPECT_EQ(inside->block.markov_rank, 4);
  const auto scaled = Read(With(kDFlash, R"("mask_token_id")",
                                R"("input_embedding_scale": 2.5, "output_multiplier": 0.5,
                                   "final_logit_softcapping": 30, "mask_token_id")"));
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_EQ(scaled->embedding_scale, 2.5f);
  EXPECT_EQ(scaled->logit_scale, 0.5f);
  EXPECT_EQ(scaled->logit_softcap, 30.0f);
}

TEST(DFlashConfig, SpreadsTheLayersThatTheConfigDoesNotName) {
  const auto config = Read(With(kDFlash, R"(, "target_layer_ids": [1, 9, 17, 25, 33])", ""));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->states.layers, ElementsAre(1, 9, 17, 25, 33));
  // 14.5 is rounded to the even neighbour.
  const auto three =
      Read(With(With(With(kDFlash, R"(, "target_layer_ids": [1, 9, 17, 25, 33])", ""),
                     R"("num_hidden_layers": 5)", R"("num_hidden_layers": 3)"),
                R"("full_attention", "full_attention", "full_attention", "full_attention",
                  "full_attention")",
                R"("full_attention", "full_attention", "full_attention")"));
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_THAT(three->states.layers, ElementsAre(1, 17, 33));
  const auto odd =
      Read(With(With(With(With(kDFlash, R"(, "target_layer_ids": [1, 9, 17, 25, 33])", ""),
                          R"("num_hidden_layers": 5)", R"("num_hidden_layers": 3)"),
                     R"("full_attention", "full_attention", "full_attention", "full_attention",
                  "full_attention")",
                     R"("full_attention", "full_attention", "full_attention")"),
                R"("num_target_layers": 36)", R"("num_target_layers": 31)"));
  ASSERT_TRUE(odd.ok()) << odd.status();
  EXPECT_THAT(odd->states.layers, ElementsAre(1, 14, 28));
}

TEST(DFlashConfig, RefusesWhatItDoesNotServeByTheFieldsName) {
  EXPECT_THAT(Refusal(With(kDFlash, "151669", "151936")), HasSubstr("dflash_config.mask_token_id"));
  EXPECT_THAT(Refusal(With(kDFlash, R"("mask_token_id": 151669, )", "")),
              HasSubstr("mask_token_id"));
  EXPECT_THAT(Refusal(With(kDFlash, R"("block_size": 16)", R"("block_size": 1)")),
              HasSubstr("block_size"));
  EXPECT_THAT(Refusal(With(kDSpark, R"("block_size": 7,)", "")), HasSubstr("block_size"));
  EXPECT_THAT(Refusal(With(kDFlash, "25, 33]", "25, 35]")),
              HasSubstr("dflash_config.target_layer_ids"));
  EXPECT_THAT(Refusal(With(kDFlash, "[1, 9", "[-1, 9")), HasSubstr("target_layer_ids"));
  EXPECT_THAT(Refusal(With(kDFlash, R"("full_attention")", R"("sliding_attention")")),
              HasSubstr("layer_types: sliding_attention is not served yet in DFlashDraftModel"));
  EXPECT_THAT(Refusal(With(kDFlash, R"("use_sliding_window": false)", R"("is_causal": true)")),
              HasSubstr("is_causal"));
  EXPECT_THAT(Refusal(With(kDSpark, "vanilla", "gated")),
              HasSubstr("markov_head_type: gated is not served yet, expected vanilla"));
  EXPECT_THAT(Refusal(With(kDFlash, "DFlashDraftModel", "DFlash2DraftModel")),
              HasSubstr("DFlash2DraftModel is not served yet"));
}

// The error of the tensors of a folder, after a change to them.
template <class Change>
std::string TensorRefusal(const test::TinyDFlashOptions& options, Change change) {
  const test::TempDir dir;
  test::TinyLlama draft = test::MakeTinyDFlash(test::MakeTinyLlama({.layers = 4}), options);
  change(&draft.tensors);
  test::WriteTinyLlama(draft, dir.path());
  const auto config = ReadModelConfig(dir.path());
  if (!config.ok()) return std::string(config.status().message());
  const auto checkpoint = Checkpoint::Open(dir.path());
  if (!checkpoint.ok()) return std::string(checkpoint.status().message());
  const absl::Status status = CheckTensors(*config, checkpoint->get());
  return status.ok() ? "accepted" : std::string(status.message());
}

TEST(DFlashConfig, RefusesTensorsByTheirNames) {
  const test::TinyDFlashOptions dspark = {.markov_rank = 4, .dspark = true, .owns_ends = true};
  EXPECT_EQ(TensorRefusal(dspark, [](auto*) {}), "accepted");
  EXPECT_EQ(TensorRefusal(dspark,
                          [](auto* tensors) {
                            for (const std::string w : {"markov_w1.weight", "markov_w2.weight"})
                              tensors->insert({w, tensors->at("markov_head." + w)}),
                                  tensors->erase("markov_head." + w);
                          }),
            "accepted");
  EXPECT_THAT(
      TensorRefusal(dspark,
                    [](auto* tensors) { tensors->erase("layers.1.self_attn.k_norm.weight"); }),
      HasSubstr("layers.1.self_attn.k_norm.weight"));
  EXPECT_THAT(TensorRefusal(dspark,
                            [](auto* tensors) {
                              tensors->at("markov_head.markov_w2.weight") =
                                  tensors->at("fc.weight");
                            }),
              HasSubstr("markov_head.markov_w2.weight"));
  EXPECT_THAT(
      TensorRefusal(dspark, [](auto* tensors) { tensors->erase("markov_head.markov_w1.weight"); }),
      HasSubstr("markov_w1.weight"));
}

}  // namespace
}  // namespace coppice::model
