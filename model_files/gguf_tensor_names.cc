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
    {"mlp.gate", "ffn_gate_inp"},  // of Qwen, as the next is of Mixtral
    {"block_sparse_moe.gate", "ffn_gate_inp"},
};
// After "experts.E.": Qwen's names, then Mixtral's.
constexpr Name kExpert[] = {{"gate_proj", "ffn_gate"}, {"up_proj", "ffn_up"},
                            {"down_proj", "ffn_down"}, {"w1", "ffn_gate"},
                            {"w3", "ffn_up"},          {"w2", "ffn_down"}};

// A matrix of an expert: "model.layers.3.mlp.experts.5.up_proj.weight".
struct Expert {
  int layer = 0;
  int expert = 0;
  absl::string_view matrix;  // "ffn_up"
};

// Consumes a number and the dot behind it.
bool ConsumeNumber(absl::string_view* text, int* number) {
  const size_t dot = text->find('.');
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(text->substr(0, dot), number))
    return false;
  text->remove_prefix(dot + 1);
  return true;
}

std::optional<Expert> FindExpert(absl::string_view name) {
  Expert found;
  if (!absl::ConsumePrefix(&name, "model.layers.") || !ConsumeNumber(&name, &found.layer) ||
      !(absl::ConsumePrefix(&name, "mlp.experts.") ||
        absl::ConsumePrefix(&name, "block_sparse_moe.experts.")) ||
      !ConsumeNumber(&name, &found.expert) || !absl::ConsumeSuffix(&name, ".weight"))
    return std::nullopt;
  for (const Name& row : kExpert) {
    if (name != row.folder) continue;
    found.matrix = row.file;
    return found;
  }
  return std::nullopt;
}

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

std::optional<int> ExpertOf(absl::string_view name) {
  const std::optional<Expert> found = FindExpert(name);
  return found ? std::optional(found->expert) : std::nullopt;
}

std::string GgufExpertName(absl::string_view name) {
  const std::optional<Expert> found = FindExpert(name);
  if (!found) return "";
  return absl::StrCat("blk.", found->layer, ".", found->matrix, ".", found->expert, ".weight");
}

std::string GgufTensorName(absl::string_view architecture, absl::string_view name) {
  if (const std::optional<Expert> found = FindExpert(name))
    return absl::StrCat("blk.", found->layer, ".", found->matrix, "_exps.weight");
  absl::string_view base = name, ending = ".weight";
  if (!absl::ConsumeSuffix(&base, ending)) {
    ending = ".bias";
    if (!absl::ConsumeSuffix(&base, ending)) return "";
  }
  for (const Name& row : kOuter) {
    if (base == row.folder) return absl::StrCat(row.file, ending);
  }
  if (!absl::ConsumePrefix(&base, "model.layers.")) return "";
  int layer = 0;
  if (!ConsumeNumber(&base, &layer)) return "";
  const absl::string_view found = LayerName(architecture, base);
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
