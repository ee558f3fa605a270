// How files scale positions, as rope_scaling of config.json.
#include "model_files/gguf_rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model_files/gguf_config.h"
#include "nlohmann/json.hpp"
#include "tests/model_files/sample_gguf.h"
#include "tests/testing/temp_dir.h"

namespace coppice::model_files {
namespace {

using Json = nlohmann::json;
using test::GgufBuilder;

absl::StatusOr<Json> Read(const GgufBuilder& builder) {
  const test::TempDir dir;
  dir.Write("F.gguf", builder.Bytes());
  const auto file = GgufFile::Open(dir.File("F.gguf"));
  if (!file.ok()) return file.status();
  return GgufConfig(*file);
}

Json Scaling(const GgufBuilder& builder) {
  const auto config = Read(builder);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? config->value("rope_scaling", Json()) : Json();
}

TEST(GgufRope, LinearUnlessNamed) {
  const auto llama = [] { return SampleGguf("llama"); };
  const Json four = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(Scaling(llama()), Json());
  EXPECT_EQ(Scaling(llama().F32("llama.rope.scaling.factor", 4)), four);
  EXPECT_EQ(Scaling(llama().F32("llama.rope.scale_linear", 4)), four);  // of old files
  EXPECT_EQ(Scaling(llama().F32("llama.rope.scaling.factor", 0)), Json());
  EXPECT_EQ(Scaling(llama().F32("llama.rope.scaling.factor", 1)), Json());
  EXPECT_EQ(
      Scaling(llama().F32("llama.rope.scaling.factor", 4).Text("llama.rope.scaling.type", "none")),
      Json());
}

TEST(GgufRope, Yarn) {
  GgufBuilder file = SampleGguf("qwen2");
  file.Text("qwen2.rope.scaling.type", "yarn").F32("qwen2.rope.scaling.factor", 4);
  file.U32("qwen2.rope.scaling.original_context_length", 1024);
  EXPECT_EQ(
      Scaling(file),
      Json({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}}));
  file.F32("qwen2.rope.scaling.yarn_beta_fast", 16);
  EXPECT_EQ(Scaling(file)["beta_fast"], 16.0);
  file.Remove("qwen2.rope.scaling.original_context_length");
  EXPECT_THAT(std::string(Read(file).status().message()),
              testing::EndsWith("key qwen2.rope.scaling.original_context_length: missing"));
}

TEST(GgufRope, LongRope) {
  GgufBuilder file = SampleGguf("phi3");
  const std::vector<float> longer(8, 3), shorter(8, 1);
  file.F32Tensor("rope_factors_long.weight", {8}, longer);
  file.F32Tensor("rope_factors_short.weight", {8}, shorter);
  file.U32("phi3.rope.scaling.original_context_length", 1024);
  file.F32("phi3.rope.scaling.attn_factor", std::sqrt(1 + std::log(4.0f) / std::log(1024.0f)));
  const auto config = Read(file);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ((*config)["rope_scaling"],
            Json({{"type", "longrope"}, {"long_factor", longer}, {"short_factor", shorter}}));
  EXPECT_EQ((*config)["original_max_position_embeddings"], 1024);
  file.F32("phi3.rope.scaling.attn_factor", 1.5f);
  EXPECT_THAT(std::string(Read(file).status().message()),
              testing::HasSubstr("key phi3.rope.scaling.attn_factor: 1.5 is not served, expected"));
}

// The divisors of the frequencies of a head of 16, as converters of Llama 3 write them.
std::vector<float> Llama3Divisors(double low, double high, double factor) {
  std::vector<float> divisors;
  for (int i = 0; i < 8; ++i) {
    const double wavelength = 2 * M_PI * std::pow(1e6, i / 8.0);
    const double smooth = std::clamp((8192 / wavelength - low) / (high - low), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
  }
  return divisors;
}

TEST(GgufRope, DivisorsOfLlama3) {
  GgufBuilder file = SampleGguf("llama");
  file.F32Tensor("rope_freqs.weight", {8}, Llama3Divisors(1, 4, 32));
  EXPECT_EQ(Scaling(file), Json({{"rope_type", "llama3"},
                                 {"factor", 32.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position_embeddings", 8192}}));
  file.F32Tensor("rope_freqs.weight", {8}, Llama3Divisors(1, 8, 32));
  EXPECT_THAT(std::string(Read(file).status().message()),
              testing::HasSubstr("the divisor of Llama 3 (factors 1 and 4, context 8192)"));
  file.F32Tensor("rope_freqs.weight", {4}, {1, 1, 1, 1});
  EXPECT_THAT(std::string(Read(file).status().message()),
              testing::EndsWith("tensor rope_freqs.weight: F32 [4], expected F32 [8]"));
}

TEST(GgufRope, NamesWhatIsNotServed) {
  const auto refusal = [](const GgufBuilder& file) {
    const std::string text(Read(file).status().message());
    return text.substr(text.find(": ") + 2);
  };
  EXPECT_EQ(refusal(SampleGguf("llama").Text("llama.rope.scaling.type", "spiral")),
            "key llama.rope.scaling.type: spiral is not served (none, linear, yarn, longrope are)");
  EXPECT_EQ(
      refusal(SampleGguf("llama").Text("llama.rope.scaling.type", "longrope")),
      "key llama.rope.scaling.type: longrope, but tensor rope_factors_long.weight is missing");
  EXPECT_EQ(refusal(SampleGguf("llama").F32("llama.rope.scaling.attn_factor", 2)),
            "key llama.rope.scaling.attn_factor: 2 is not served, expected 1");
  GgufBuilder both = SampleGguf("llama");
  both.F32Tensor("rope_freqs.weight", {8}, Llama3Divisors(1, 4, 32));
  EXPECT_EQ(refusal(both.F32("llama.rope.scaling.factor", 2)),
            "tensor rope_freqs.weight: not served beside a linear scale of 2");
}

}  // namespace
}  // namespace coppice::model_files
