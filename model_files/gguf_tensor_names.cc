#include "model_files/gguf_tensor_names.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace coppice::model_files {
namespace {

struct Name {
  absl::string_view folder, file;
};

// Without ".weight" and ".bias".
constexpr Name kOuter[] = {
    {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}};
// After "model.layers.N." and "blk.N.".
constexpr Name kLayer[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},  // of phi3, whose ffn_up has both
    {"mlp.down_proj", "ffn_down"},
    {"pre_feedforward_layernorm", "ffn_norm"},  // of Gemma, as the next
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

bool IsGemma(absl::string_view architecture) { return absl::StartsWith(architecture, "gemma"); }

absl::string_view LayerName(absl::string_view architecture, absl::string_view name) {
  // The same name stands for the norm before the MLP, or for that of what attention adds.
  if (name == "post_attention_layernorm")
    return IsGemma(architecture) ? "post_attention_norm" : "ffn_norm";
  for (const Name& row : kLayer) {
    if (name == row.folder) return row.file;
  }
  return "";
}

}  // namespace

std::string GgufTensorName(absl::string_view architecture, absl::string_view name) {
  absl::string_view base = name, ending = ".weight";
  if (!absl::ConsumeSuffix(&base, ending)) {
    ending = ".bias";
    if (!absl::ConsumeSuffix(&base, ending)) return "";
  }
  for (const Name& row : kOuter) {
    if (base == row.folder) return absl::StrCat(row.file, ending);
  }
  if (!absl::ConsumePrefix(&base, "model.layers.")) return "";
  const size_t dot = base.find('.');
  int layer = 0;
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(base.substr(0, dot), &layer)) return "";
  const absl::string_view found = LayerName(architecture, base.substr(dot + 1));
  return found.empty() ? "" : absl::StrCat("blk.", layer, ".", found, ending);
}

bool HasInterleavedHeads(absl::string_view architecture, absl::string_view name) {
  return architecture == "llama" && (absl::StrContains(name, ".self_attn.q_proj.") ||
                                     absl::StrContains(name, ".self_attn.k_proj."));
}

int64_t InterleavedRow(int64_t row, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

float AddedToGain(absl::string_view architecture, absl::string_view name) {
  return IsGemma(architecture) && absl::EndsWith(name, "norm.weight") ? 1.0f : 0.0f;
}

}  // namespace coppice::model_files
