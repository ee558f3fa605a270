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

// Bytes of a matrix. int8 has an f32 scale for 64 elements, int4 a bf16 scale for 32. A block format
// of GGUF takes at most 3 % more than in its file.
int64_t MatrixBytes(int64_t elements, kernels::DType dtype) {
  if (kernels::IsBlockFormat(dtype)) {
    constexpr int64_t kRows = kernels::cpu::kPanelWidth;
    return static_cast<int64_t>(kernels::cpu::PackedBytes(dtype, kRows, elements / kRows));
  }
  if (dtype == kernels::DType::kI4) return elements / 2 + elements / 32 * 2;
  const int64_t values = elements * static_cast<int64_t>(kernels::DTypeSize(dtype));
  return values + (dtype == kernels::DType::kI8 ? elements / 64 * kFloatBytes : 0);
}

// Elements of the matrices of one layer, and of its gains and biases.
struct LayerSize {
  int64_t qkv = 0;
  int64_t matrices = 0;  // bytes of the other matrices
  int64_t vectors = 0;
};

LayerSize SizeOfLayer(const ModelConfig& config, const ShardPlan& plan) {
  const int64_t d = config.hidden_size, f = plan.intermediate.size();
  const int64_t q = int64_t{plan.q_heads.size()} * config.head_dim;
  const int64_t kv = int64_t{plan.kv_heads.size()} * config.head_dim;
  LayerSize size;
  size.qkv = (q + 2 * kv) * d;
  size.matrices = d * q + 2 * f * d + d * f;
  size.vectors = 2 * d;
  if (config.attention_bias) size.vectors += q + 2 * kv;
  if (config.output_bias) size.vectors += d;
  if (config.mlp_bias) size.vectors += 2 * f + d;
  return size;
}

}  // namespace

ModelMemory PredictMemory(const ModelConfig& config, const ShardPlan& plan, kernels::DType weights,
                          kernels::DType activations, int max_rows, int ranks) {
  const int64_t d = config.hidden_size, vocab = plan.vocab.size();
  const LayerSize layer = SizeOfLayer(config, plan);
  // It is not known yet which rows of a draft vocabulary this rank holds: at most this many.
  const bool reduced = config.draft_vocab_size > 0;
  const int64_t head = reduced ? std::min<int64_t>(config.draft_vocab_size, vocab) : vocab;
  const int64_t fine = config.num_layers * layer.qkv + (vocab + (config.tied_head ? 0 : head)) * d;
  const int64_t vectors = config.num_layers * layer.vectors + d;
  ModelMemory memory;
  memory.weights = MatrixBytes(config.num_layers * layer.matrices, weights) +
                   MatrixBytes(fine, FineDType(weights)) + vectors * kFloatBytes +
                   (reduced ? vocab : 0) * kIdBytes;
  const int64_t q = int64_t{plan.q_heads.size()} * config.head_dim;
  const int64_t kv = int64_t{plan.kv_heads.size()} * config.head_dim;
  // As Transformer::Allocate: the residual, a partial sum and the logits are f32.
  const int64_t floats = d + (ranks > 1 ? d : 0) + vocab + (reduced ? head : 0);
  const int64_t others = d + (q + 2 * kv) + q + 3 * int64_t{plan.intermediate.size()};
  const int64_t rope = int64_t{config.rope.max_positions} * config.rope.head_dim;
  memory.activations = max_rows * (floats * kFloatBytes +
                                   others * static_cast<int64_t>(kernels::DTypeSize(activations))) +
                       rope * kFloatBytes;
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

int64_t DefaultKvBytes(const ModelMemory& model, const kernels::MemoryFacts& memory) {
  if (!memory.of_device) return kHostKvBytes;
  return std::max<int64_t>(0, memory.free - model.activations - memory.total / 10);
}

}  // namespace coppice::model
