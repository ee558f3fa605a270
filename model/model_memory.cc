#include "model/model_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/block_format.h"
#include "kernels/cpu/packed_matrix.h"
#include "model/weights.h"

namespace coppice::model {
namespace {

constexpr int64_t kFloatBytes = 4, kIdBytes = 4;
constexpr int64_t kHostKvBytes = int64_t{1} << 30;

std::string Gigabytes(int64_t bytes) { return absl::StrFormat("%.2f GB", bytes / 1e9); }

// Bytes of a matrix. A block format of GGUF takes at most 3 % more than in its file.
int64_t MatrixBytes(int64_t elements, kernels::DType dtype) {
  if (kernels::IsBlockFormat(dtype)) {
    constexpr int64_t kRows = kernels::cpu::kPanelWidth;
    return static_cast<int64_t>(kernels::cpu::PackedBytes(dtype, kRows, elements / kRows));
  }
  return elements * static_cast<int64_t>(kernels::DTypeSize(dtype));
}

// Elements of the matrices of one layer, and of its gains and biases.
struct LayerSize {
  int64_t qkv = 0;
  int64_t matrices = 0;  // bytes of the other matrices
  int64_t vectors = 0;
};

LayerSize SizeOfLayer(const ModelConfig& config, const ShardPlan& plan, const LayerParts& parts) {
  const int64_t d = config.hidden_size, f = plan.intermediate.size();
  const int64_t up = config.gated_mlp ? 2 * f : f;
  const int64_t q = int64_t{plan.q_heads.size()} * config.head_dim;
  const int64_t kv = int64_t{plan.kv_heads.size()} * config.head_dim;
  const int64_t norms = (config.has_in_norms() ? 2 : 0) + (config.has_out_norms() ? 2 : 0);
  LayerSize size;
  size.qkv = (q + 2 * kv) * config.qkv_inputs();
  size.matrices = d * q;
  if (parts.experts) {
    size.matrices += int64_t{config.experts.count} * 3 * plan.expert.size() * d;
    size.vectors += config.experts.count * d;  // the router, which is not quantised
  } else {
    size.matrices += up * d + d * f;
  }
  size.vectors += norms * d * (config.norm_bias ? 2 : 1);
  if (config.begins_with_state()) size.vectors += d;
  if (config.qk_norm) size.vectors += config.whole_qk_norm ? q + kv : 2 * config.head_dim;
  if (config.attention_bias) size.vectors += q + 2 * kv;
  if (config.output_bias) size.vectors += d;
  if (config.mlp_bias) size.vectors += up + d;
  return size;
}

// Elements of the matrices outside of the layers. head: rows of the head.
int64_t OuterMatrices(const ModelConfig& config, int64_t vocab, int64_t head) {
  const int64_t d = config.hidden_size, e = config.embedding_size;
  return (vocab + (config.tied_head ? 0 : head)) * e +
         (config.projects_embedding() ? 2 * d * e : 0) +
         (config.learned_positions() ? config.position_rows() * d : 0);
}

}  // namespace

ModelMemory PredictMemory(const ModelConfig& config, const ShardPlan& plan, kernels::DType weights,
                          kernels::DType activations, int max_rows, int ranks) {
  const int64_t d = config.hidden_size, vocab = plan.vocab.size();
  LayerSize layers;  // of all
  for (const LayerParts& parts : config.layers) {
    const LayerSize layer = SizeOfLayer(config, plan, parts);
    layers.qkv += layer.qkv;
    layers.matrices += layer.matrices;
    layers.vectors += layer.vectors;
  }
  // It is not known yet which rows of a draft vocabulary this rank holds: at most this many.
  const bool reduced = config.draft_vocab_size > 0;
  const int64_t head = reduced ? std::min<int64_t>(config.draft_vocab_size, vocab) : vocab;
  const int64_t fine = layers.qkv + OuterMatrices(config, vocab, head);
  const int64_t final_norm =
      config.norm_place == NormPlace::kAfterSum ? 0 : d * (config.norm_bias ? 2 : 1);
  const int64_t vectors = layers.vectors + final_norm;
  // The bias of a block drafter, which is on the host.
  const int64_t markov = int64_t{2} * config.block.markov_rank * config.vocab_size;
  ModelMemory memory;
  memory.weights = markov * static_cast<int64_t>(sizeof(uint16_t)) +
                   MatrixBytes(layers.matrices, weights) + MatrixBytes(fine, FineDType(weights)) +
                   vectors * kFloatBytes + (reduced ? vocab : 0) * kIdBytes;
  const int64_t q = int64_t{plan.q_heads.size()} * config.head_dim;
  const int64_t kv = int64_t{plan.kv_heads.size()} * config.head_dim;
  const int64_t e = config.projects_embedding() ? config.embedding_size : 0;
  // As Transformer::Allocate: the residual, what is added apart and the logits are f32.
  const int64_t floats = d + (config.adds_apart(ranks) || config.begins_with_state() ? d : 0) + e +
                         vocab + (reduced ? head : 0);
  const int64_t others = (config.parallel_residual ? 2 : 1) * d +
                         (config.begins_with_state() ? 2 * d : 0) + e + (q + 2 * kv) + q +
                         (config.gated_mlp ? 3 : 2) * int64_t{plan.intermediate.size()};
  // What each row takes of the activations of a layer of experts, which all such layers share. The
  // CPU takes less: as much as the expert with the most rows needs.
  int64_t expert_bytes = 0;
  if (const ExpertParts& experts = config.experts; experts.count > 0) {
    constexpr int64_t kIdsOfPair = 4;  // and its share
    const int64_t of_pair =
        (d + kIdsOfPair) * kFloatBytes +
        3 * plan.expert.size() * static_cast<int64_t>(kernels::DTypeSize(activations));
    expert_bytes = experts.count * kFloatBytes + experts.chosen * of_pair;
  }
  int64_t rope = 0;
  for (const kernels::RopeConfig& table : config.ropes)
    rope += int64_t{table.max_positions} * 2 * static_cast<int64_t>(table.frequencies.size());
  memory.activations = max_rows * (floats * kFloatBytes + expert_bytes +
                                   others * static_cast<int64_t>(kernels::DTypeSize(activations))) +
                       rope * kFloatBytes;
  return memory;
}

ModelMemory PredictMemory(const StateFusion& fusion, kernels::DType matrices,
                          kernels::DType activations, int max_rows) {
  const auto layers = static_cast<int64_t>(fusion.layers.size());
  const TargetStates& states = fusion.config.states;
  const int64_t d = states.size, h = fusion.columns(), all = layers * d;
  const bool whole = states.norm == TargetStates::Norm::kWhole;
  ModelMemory memory;
  memory.weights = MatrixBytes(h * all, matrices);
  if (states.norm != TargetStates::Norm::kNone) memory.weights += all * kFloatBytes;
  // As Transformer::AllocateStates: the outputs that stand beside each other grow layer by layer.
  const int64_t floats = h + (whole ? d * layers * (layers + 1) / 2 : 0);
  memory.activations =
      max_rows * (floats * kFloatBytes +
                  (whole ? all : 0) * static_cast<int64_t>(kernels::DTypeSize(activations)));
  return memory;
}

absl::Status CheckFits(const std::string& dir, const ModelMemory& model, int64_t kv_bytes,
                       kernels::DType dtype, const kernels::MemoryFacts& memory) {
  const int64_t needed = model.weights + model.activations + kv_bytes;
  if (memory.total == 0 || needed <= memory.free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(dir, " does not fit: it needs ", Gigabytes(needed), " on this rank (weights in ",
                   kernels::DTypeName(dtype), " ", Gigabytes(model.weights), ", activations ",
                   Gigabytes(model.activations), ", KV pool ", Gigabytes(kv_bytes), "); ",
                   memory.of_device ? "the device" : "this host", " has ", Gigabytes(memory.free),
                   " free of ", Gigabytes(memory.total),
                   ". What takes less: more ranks (--tp), --dtype=bf16, a smaller --kv_bytes"));
}

kernels::MemoryFacts ShareOf(const kernels::MemoryFacts& memory, double share, int64_t used) {
  if (!memory.of_device || share >= 1) return memory;
  kernels::MemoryFacts mine = memory;
  mine.total = static_cast<int64_t>(static_cast<double>(memory.total) * share);
  mine.free = std::max<int64_t>(0, std::min(memory.free, mine.total - used));
  return mine;
}

int64_t DefaultKvBytes(const ModelMemory& model, const kernels::MemoryFacts& memory) {
  if (!memory.of_device) return kHostKvBytes;
  return std::max<int64_t>(0, memory.free - model.activations - memory.total / 10);
}

}  // namespace coppice::model
