// The fuzzer of GGUF files over small ones of each architecture, and random changes of them.
// COPPICE_WRITE_SEEDS=FOLDER also writes them there, for fuzz.sh.
#include <cstdlib>
#include <fstream>

#include "tests/model_files/sample_gguf.h"
#include "tests/testing/fuzz_seeds.h"

namespace coppice::model_files {
namespace {

test::GgufBuilder SentencePieceGguf() {
  test::GgufBuilder file = SampleGguf("gemma2");
  return file.U32("gemma2.attention.sliding_window", 64)
      .Text("tokenizer.ggml.model", "llama")
      .Texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "<0x41>"})
      .I32s("tokenizer.ggml.token_type", {2, 3, 3, 1, 6})
      .F32s("tokenizer.ggml.scores", {0, 0, 0, -1, 0});
}

std::vector<std::string> Samples() {
  std::vector<std::string> samples;
  for (const char* name : {"llama", "qwen2", "qwen3", "phi3"})
    samples.push_back(SampleGguf(name).Bytes());
  for (const std::string name : {"llama", "qwen3moe"}) {
    samples.push_back(
        SampleGguf(name)
            .U32(name + ".expert_count", 4)
            .U32(name + ".expert_used_count", 2)
            .F32Tensor("blk.0.ffn_up_exps.weight", {4, 2, 1}, {1, 2, 3, 4, 5, 6, 7, 8})
            .Bytes());
  }
  samples.push_back(SentencePieceGguf().Bytes());
  samples.push_back(SampleGguf("llama")
                        .F32Tensor("rope_freqs.weight", {8}, {1, 1, 1, 1, 1, 1, 1, 1})
                        .Tensor("blk.0.attn_q.weight", {2, 32}, 8, std::string(68, 'x'))
                        .Bytes(2));
  return samples;
}

TEST(GgufSeeds, EveryChangeOfAFileIsRefusedOrRead) {
  const std::vector<std::string> samples = Samples();
  if (const char* folder = std::getenv("COPPICE_WRITE_SEEDS")) {
    for (size_t i = 0; i < samples.size(); ++i)
      std::ofstream(absl::StrCat(folder, "/", i, ".gguf"), std::ios::binary) << samples[i];
  }
  // Mostly the headers, which come first.
  std::vector<std::string> headers;
  for (const std::string& sample : samples) headers.push_back(sample.substr(0, 1500));
  test::RunSeedsAndChanges(samples, 1000);
  test::RunSeedsAndChanges(headers, 1500);
}

}  // namespace
}  // namespace coppice::model_files
