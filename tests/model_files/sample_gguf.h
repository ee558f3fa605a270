// The metadata of a small model of each architecture, for tests of gguf_config.cc and gguf_rope.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/tiny_gguf.h"

namespace coppice::model_files {

// 2 layers, width 64, 4 heads of 16 and 2 KV heads, 8 tokens.
inline test::GgufBuilder SampleGguf(const std::string& name) {
  test::GgufBuilder file;
  const auto key = [&](const char* field) { return absl::StrCat(name, ".", field); };
  file.Text("general.architecture", name)
      .U32(key("block_count"), 2)
      .U32(key("context_length"), 4096)
      .U32(key("embedding_length"), 64)
      .U32(key("feed_forward_length"), 96)
      .U32(key("attention.head_count"), 4)
      .U32(key("attention.head_count_kv"), 2)
      .F32(key("attention.layer_norm_rms_epsilon"), 1e-6f)
      .F32(key("rope.freq_base"), 1e6f);
  test::SetByteVocabulary(8, &file);
  file.F32Tensor("token_embd.weight", {10, 64}, std::vector<float>(640, 0.5f));
  return file;
}

}  // namespace coppice::model_files
