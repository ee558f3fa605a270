// EAGLE-3 heads as their publishers write them: configuration, names of tensors, what is taken of the
// target, and what is refused by name. The forward pass: eagle3_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/draft_checkpoint.h"
#include "model/model_config.h"
#include "model/target_states.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Eagle3Config : public testing::Test {
 protected:
  Eagle3Config() { test::WriteTinyLlama(target_, target_dir_.path()); }

  test::TinyLlama Head(const test::TinyEagle3Options& options = {}) const {
    return test::MakeTinyEagle3(target_, options);
  }
  absl::StatusOr<ModelConfig> Read(const test::TinyLlama& head) {
    test::WriteTinyLlama(head, dir_.path());
    return ReadDraftConfig(dir_.path(), target_dir_.path());
  }
  std::string Refusal(const test::TinyLlama& head) {
    return std::string(Read(head).status().message());
  }
  absl::StatusOr<uint64_t> States(const test::TinyLlama& head) {
    test::WriteTinyLlama(head, dir_.path());
    return StatesFingerprint(dir_.path(), target_dir_.path());
  }

  const test::TinyLlama target_ = test::MakeTinyLlama({.layers = 8});
  test::TempDir target_dir_, dir_;
};

TEST_F(Eagle3Config, ReadsSpecForge) {
  const auto config = Read(Head({.layers = {0, 3, 6}, .ids = {1, 2, 5}, .hidden = 48}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "LlamaForCausalLMEagle3");
  EXPECT_EQ(config->states.use, TargetStates::Use::kBesideEmbedding);
  EXPECT_THAT(config->states.layers, ElementsAre(0, 3, 6));
  EXPECT_EQ(config->states.size, 32);
  EXPECT_EQ(config->hidden_size, 48);
  EXPECT_EQ(config->draft_vocab_size, 3);
  EXPECT_FALSE(config->tied_head);
  EXPECT_FALSE(config->qk_norm);
}

TEST_F(Eagle3Config, ReadsTheAuthorsWhoCallAHeadALlama) {
  test::TinyLlama head = Head();
  test::SetConfig(&head, "architectures", R"(["LlamaForCausalLM"])");
  test::SetConfig(&head, "eagle_config", "null");
  const auto config = Read(head);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->states.use, TargetStates::Use::kBesideEmbedding);
  EXPECT_THAT(config->states.layers, ElementsAre(1, 3, 4)) << "1, n/2 - 1, n - 4";
  head.tensors.erase("fc.weight");
  EXPECT_FALSE(Read(head)->takes_states()) << "a Llama of one layer";
}

TEST_F(Eagle3Config, ReadsSpeculators) {
  test::TinyLlama head = Head({.layers = {1, 3, 4}, .ids = {1, 2, 5}});
  test::StoreAsSpeculator(&head);
  test::SetConfig(&head, "norm_before_residual", "true");
  test::SetConfig(&head, "norm_before_fc", "true");
  test::SetConfig(&head, "norm_output", "true");
  const auto config = Read(head);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->states.layers, ElementsAre(1, 3, 4));
  EXPECT_EQ(config->draft_vocab_size, 3);
  EXPECT_EQ(config->states.norm, TargetStates::Norm::kWhole);
  EXPECT_TRUE(config->states.normed_residual);
  EXPECT_TRUE(config->states.normed_output);
}

TEST_F(Eagle3Config, ServesThePositionsOfItsTarget) {
  EXPECT_EQ(Read(Head())->max_positions, 256);
  EXPECT_EQ(Read(Head())->ropes[0].max_positions, 256);
  test::TinyLlama scaled = Head();
  test::SetConfig(
      &scaled, "rope_scaling",
      R"({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32})");
  EXPECT_EQ(Read(scaled)->max_positions, 64) << "the scaling knows how long texts are";
}

TEST_F(Eagle3Config, HasNormsOfHeadsAndAWindowIfItsFolderHas) {
  test::TinyLlama head = Head();
  head.tensors["midlayer.self_attn.q_norm.weight"] = {"F32", {8}, std::vector<float>(8, 1)};
  test::SetConfig(&head, "layer_types", R"(["sliding_attention"])");
  test::SetConfig(&head, "sliding_window", "16");
  const auto config = Read(head);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->qk_norm);
  EXPECT_EQ(config->layers[0].window, 16);
}

TEST_F(Eagle3Config, RefusesWhatDoesNotFitByField) {
  test::TinyLlama head = Head();
  const auto with = [&](const std::string& field, const std::string& value) {
    test::TinyLlama other = head;
    test::SetConfig(&other, field, value);
    return Refusal(other);
  };
  EXPECT_THAT(with("num_hidden_layers", "2"),
              HasSubstr("config.json: num_hidden_layers: 2 is not served yet, expected 1"));
  EXPECT_THAT(with("vocab_size", "97"), HasSubstr("vocab_size: 97, expected 96 as the target"));
  EXPECT_THAT(with("target_hidden_size", "64"),
              HasSubstr("target_hidden_size: 64, expected 32 as the target"));
  EXPECT_THAT(with("draft_vocab_size", "97"), HasSubstr("draft_vocab_size: 97, expected"));
  EXPECT_THAT(with("eagle_config", R"({"eagle_aux_hidden_state_layer_ids": [1, 3, 7]})"),
              HasSubstr("the output of layer 7, expected 0 to 6"));
  EXPECT_THAT(with("eagle_config", R"({"eagle_aux_hidden_state_layer_ids": [1, 3, 1]})"),
              HasSubstr("eagle_config.eagle_aux_hidden_state_layer_ids: 1 is listed twice"));
  EXPECT_THAT(with("eagle_aux_hidden_state_layer_ids", "[0, 3, 5]"),
              HasSubstr("eagle_aux_hidden_state_layer_ids: "));
  EXPECT_THAT(with("eagle_config", R"({"use_aux_hidden_state": false})"),
              HasSubstr("eagle_config.use_aux_hidden_state: false is not served yet"));
  test::SetConfig(&head, "fc_norm", "true");
  EXPECT_THAT(with("norm_before_fc", "true"), HasSubstr("norm_before_fc: true beside fc_norm"));
}

TEST_F(Eagle3Config, ASmallTargetNeedsTheLayersByName) {
  const test::TinyLlama small = test::MakeTinyLlama({.layers = 4});
  test::WriteTinyLlama(small, target_dir_.path());
  test::TinyLlama head = test::MakeTinyEagle3(small);
  test::SetConfig(&head, "eagle_config", "null");
  EXPECT_THAT(Refusal(head), HasSubstr("eagle_aux_hidden_state_layer_ids: missing, expected the "
                                       "layers since the target has only 4"));
}

TEST_F(Eagle3Config, TensorsHaveOneNameAndTheTargetsStandIn) {
  for (const std::string layout : {"authors", "speculators", "model."}) {
    test::TinyLlama head = Head();
    if (layout == "speculators") test::StoreAsSpeculator(&head);
    if (layout == "model.") {
      const auto tensors = std::exchange(head.tensors, {});
      for (const auto& [name, tensor] : tensors) head.tensors["model." + name] = tensor;
      test::SetConfig(&head, "architectures", R"(["LlamaForCausalLM"])");
    }
    const auto config = Read(head);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto checkpoint = OpenCheckpoint(dir_.path(), *config, target_dir_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_TRUE((*checkpoint)->Matrix("layers.0.mlp.up_proj.weight", 48, 32).ok());
    const auto embedding = (*checkpoint)->Matrix("embed_tokens.weight", 96, 32);
    ASSERT_TRUE(embedding.ok()) << embedding.status();
    EXPECT_EQ(static_cast<const float*>(embedding->data)[5],
              target_.tensors.at("model.embed_tokens.weight").values[5]);
    EXPECT_THAT((*checkpoint)->Matrix("layers.0.mlp.up_proj.weight", 48, 33).status().message(),
                HasSubstr(layout == "speculators" ? "layers.0.mlp.up_proj.weight: shape [48, 32]"
                                                  : "midlayer.mlp.up_proj.weight: shape [48, 32]"));
  }
}

TEST_F(Eagle3Config, AnEmbeddingThatIsNowhereIsNamed) {
  const auto config = Read(Head());
  const auto alone = OpenCheckpoint(dir_.path(), *config, "");
  EXPECT_THAT(
      (*alone)->Matrix("embed_tokens.weight", 96, 32).status().message(),
      HasSubstr("embed_tokens.weight: missing; a draft without it takes that of its target, "
                "which is not given"));
  const auto beside = OpenCheckpoint(dir_.path(), *config, target_dir_.path());
  EXPECT_THAT((*beside)->Matrix("embed_tokens.weight", 96, 48).status().message(),
              HasSubstr("the draft has no embed_tokens.weight and cannot take this: "));
}

TEST_F(Eagle3Config, FingerprintOfStatesKnowsTheirMatrixAndLayers) {
  const test::TinyLlama head = Head({.layers = {0, 3, 6}});
  const auto own = States(head);
  ASSERT_TRUE(own.ok()) << own.status();
  test::TinyLlama other = head;
  other.tensors["lm_head.weight"].values[0] += 1;
  EXPECT_EQ(*States(other), *own) << "what drafts do with states is theirs";
  other.tensors["fc.weight"].values[0] += 1;
  EXPECT_NE(*States(other), *own);
  EXPECT_NE(*States(Head({.layers = {0, 3, 5}})), *own);
  test::StoreAsSpeculator(&(other = head));
  EXPECT_EQ(*States(other), *own);
}

}  // namespace
}  // namespace coppice::model
