#include "model/transformer.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace coppice::model {

kernels::KvPoolShape TransformerParts::kv_shape(int64_t blocks) const {
  return {config.num_layers, plan.kv_heads.size(), config.head_dim, blocks, dtype};
}

size_t TransformerParts::kv_block_bytes() const {
  const size_t token =
      size_t{2} * plan.kv_heads.size() * config.head_dim * kernels::DTypeSize(dtype);
  return token * kBlockSize * config.num_layers;
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(TransformerParts parts,
                                                                 kernels::Backend* backend,
                                                                 kernels::KvPool* pool, int ranks) {
  std::unique_ptr<Transformer> decoder(new Transformer(std::move(parts), pool, ranks));
  COPPICE_RETURN_IF_ERROR(decoder->Allocate(backend));
  return decoder;
}

Transformer::Transformer(TransformerParts parts, kernels::KvPool* pool, int ranks)
    : parts_(std::move(parts)), pool_(pool), ranks_(ranks) {
  COPPICE_CHECK(parts_.max_rows > 0);
}

absl::Status Transformer::Allocate(kernels::Backend* backend) {
  const ShardPlan& plan = parts_.plan;
  const int64_t d = parts_.config.hidden_size, head_dim = parts_.config.head_dim;
  const int64_t q = plan.q_heads.size(), kv = plan.kv_heads.size();
  const auto make = [&](int64_t columns, kernels::DType dtype) {
    return backend->Allocate(parts_.max_rows, columns, dtype);
  };
  COPPICE_ASSIGN_OR_RETURN(rope_, backend->MakeRope(parts_.config.rope));
  const kernels::DType dtype = backend->activation_dtype();
  if (ranks_ > 1) {
    COPPICE_ASSIGN_OR_RETURN(x_, backend->AllocateSummed(parts_.max_rows, d));
    COPPICE_ASSIGN_OR_RETURN(partial_, backend->AllocateSummed(parts_.max_rows, d));
  } else {
    COPPICE_ASSIGN_OR_RETURN(x_, make(d, kernels::DType::kF32));
  }
  COPPICE_ASSIGN_OR_RETURN(normed_, make(d, dtype));
  COPPICE_ASSIGN_OR_RETURN(qkv_, make((q + 2 * kv) * head_dim, dtype));
  COPPICE_ASSIGN_OR_RETURN(attended_, make(q * head_dim, dtype));
  COPPICE_ASSIGN_OR_RETURN(gate_up_, make(2 * plan.intermediate.size(), dtype));
  COPPICE_ASSIGN_OR_RETURN(activated_, make(plan.intermediate.size(), dtype));
  if (parts_.weights.scatter != nullptr) {
    COPPICE_ASSIGN_OR_RETURN(kept_, make(parts_.weights.head().rows, kernels::DType::kF32));
  }
  COPPICE_ASSIGN_OR_RETURN(logits_, make(plan.vocab.size(), kernels::DType::kF32));
  return absl::OkStatus();
}

void Transformer::Body(kernels::Ops* ops) {
  ops->CommitKv(pool_);
  if (!ops->has_rows()) return;
  // Each token's row is on one rank and the other ranks add zeros, so the sum is exact.
  ops->Embed(*parts_.weights.embedding, parts_.plan.vocab.begin, x_);
  if (ranks_ > 1) ops->AllReduce(x_);
  const int layers = parts_.config.num_layers;
  for (int layer = 0; layer < layers; ++layer) {
    Attend(ops, layer);
    if (layer + 1 == layers) {
      if (!ops->has_needs()) return;
      ops->GatherRows({x_, attended_});
    }
    const LayerWeights& w = parts_.weights.layers[layer];
    AddRowParallel(ops, *w.output, attended_);
    Mlp(ops, w);
    if (parts_.on_layer) parts_.on_layer();
  }
}

void Transformer::Head(kernels::Ops* ops) {
  AddNorm(ops, partial_, *parts_.weights.final_norm);
  const TransformerWeights& w = parts_.weights;
  ops->MatMul(w.head(), normed_, kept_.empty() ? logits_ : kept_, /*accumulate=*/false);
  if (!kept_.empty()) ops->Scatter(*w.scatter, kept_, logits_);
  ops->Select(logits_, parts_.plan.vocab.begin, parts_.config.vocab_size);
}

void Transformer::Attend(kernels::Ops* ops, int layer) {
  const LayerWeights& w = parts_.weights.layers[layer];
  AddNorm(ops, layer == 0 ? kernels::Tensor() : partial_, *w.attention_norm);
  ops->MatMul(*w.qkv, normed_, qkv_, /*accumulate=*/false);
  ops->RopeAndStoreKv(layer, *rope_, qkv_, pool_);
  if (layer + 1 == parts_.config.num_layers && !ops->has_needs()) return;
  ops->Attention(layer, qkv_, *pool_, attended_);
}

void Transformer::Mlp(kernels::Ops* ops, const LayerWeights& w) {
  AddNorm(ops, partial_, *w.mlp_norm);
  ops->MatMul(*w.gate_up, normed_, gate_up_, /*accumulate=*/false);
  ops->SwiGlu(gate_up_, activated_);
  AddRowParallel(ops, *w.down, activated_);
}

void Transformer::AddRowParallel(kernels::Ops* ops, const kernels::Weight& w,
                                 kernels::Tensor input) {
  if (ranks_ == 1) return ops->MatMul(w, input, x_, /*accumulate=*/true);
  ops->MatMul(w, input, partial_, /*accumulate=*/false);
  ops->AllReduce(partial_);
}

void Transformer::AddNorm(kernels::Ops* ops, kernels::Tensor addend, const kernels::Weight& gain) {
  ops->AddNorm(x_, addend, gain, parts_.config.norm_epsilon, normed_);
}

}  // namespace coppice::model
