#include "model/transformer.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/kv_pool_shape.h"

namespace coppice::model {

kernels::KvPoolShape TransformerParts::kv_shape(int64_t blocks) const {
  kernels::KvPoolShape shape = {config.num_layers, plan.kv_heads.size(), config.head_dim, blocks,
                                kv_dtype};
  shape.state_columns = state_columns();
  return shape;
}

int TransformerParts::state_columns() const {
  if (config.states.use == TargetStates::Use::kBesideEmbedding) return config.hidden_size;
  return fusion.columns();
}

kernels::KvPoolShape TransformerParts::kv_shape(int64_t pages, const KvLayout& layout) const {
  kernels::KvPoolShape shape = kv_shape(pages);
  shape.layers = layout.layers;
  shape.places = layout.places;
  return shape;
}

size_t TransformerParts::kv_layer_bytes() const {
  return size_t{2} * plan.kv_heads.size() * kernels::KvVectorBytes(config.head_dim, kv_dtype);
}

size_t TransformerParts::kv_block_bytes() const {
  return kv_page_bytes({.layers = config.num_layers});
}

size_t TransformerParts::kv_page_bytes(const KvLayout& layout) const {
  return kBlockSize * (layout.layers * kv_layer_bytes() + sizeof(uint16_t) * state_columns());
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(TransformerParts parts,
                                                                 kernels::Backend* backend,
                                                                 kernels::KvPool* pool, int ranks) {
  std::unique_ptr<Transformer> decoder(new Transformer(std::move(parts), pool, ranks));
  COPPICE_RETURN_IF_ERROR(decoder->Allocate(backend));
  return decoder;
}

Transformer::Transformer(TransformerParts parts, kernels::KvPool* pool, int ranks)
    : parts_(std::move(parts)),
      pool_(pool),
      ranks_(ranks),
      adds_apart_(parts_.config.adds_apart(ranks)) {
  COPPICE_CHECK(parts_.max_rows > 0);
}

absl::Status Transformer::Allocate(kernels::Backend* backend) {
  const ModelConfig& config = parts_.config;
  const ShardPlan& plan = parts_.plan;
  const int64_t d = config.hidden_size, e = config.embedding_size, head_dim = config.head_dim;
  const int64_t q = plan.q_heads.size(), kv = plan.kv_heads.size();
  const auto make = [&](int64_t columns, kernels::DType dtype) {
    return backend->Allocate(parts_.max_rows, columns, dtype);
  };
  // An f32 tensor that is summed over the ranks, if there are several.
  const auto make_summed = [&](int64_t columns) {
    return ranks_ > 1 ? backend->AllocateSummed(parts_.max_rows, columns)
                      : make(columns, kernels::DType::kF32);
  };
  for (const kernels::RopeConfig& rope : config.ropes) {
    COPPICE_ASSIGN_OR_RETURN(auto table, backend->MakeRope(rope));
    ropes_.push_back(std::move(table));
  }
  const kernels::DType dtype = backend->activation_dtype();
  COPPICE_ASSIGN_OR_RETURN(x_, make_summed(d));
  if (adds_apart_) {
    COPPICE_ASSIGN_OR_RETURN(partial_, make_summed(d));
  }
  if (config.projects_embedding()) {
    COPPICE_ASSIGN_OR_RETURN(embedded_, make_summed(e));
    COPPICE_ASSIGN_OR_RETURN(narrow_, make(e, dtype));
  }
  if (config.begins_with_state()) {
    COPPICE_ASSIGN_OR_RETURN(embedded_, make(e, kernels::DType::kF32));
    COPPICE_ASSIGN_OR_RETURN(pair_, make(2 * d, dtype));
  }
  COPPICE_ASSIGN_OR_RETURN(normed_, make(d, dtype));
  if (config.parallel_residual) {
    COPPICE_ASSIGN_OR_RETURN(beside_, make(d, dtype));
  }
  COPPICE_ASSIGN_OR_RETURN(qkv_, make((q + 2 * kv) * head_dim, dtype));
  COPPICE_ASSIGN_OR_RETURN(attended_, make(q * head_dim, dtype));
  const int64_t f = plan.intermediate.size();
  COPPICE_ASSIGN_OR_RETURN(gate_up_, make(config.gated_mlp ? 2 * f : f, dtype));
  COPPICE_ASSIGN_OR_RETURN(activated_, make(f, dtype));
  if (parts_.weights.scatter != nullptr) {
    COPPICE_ASSIGN_OR_RETURN(kept_, make(parts_.weights.head().rows, kernels::DType::kF32));
  }
  COPPICE_ASSIGN_OR_RETURN(logits_, make(plan.vocab.size(), kernels::DType::kF32));
  return AllocateStates(backend);
}

absl::Status Transformer::AllocateStates(kernels::Backend* backend) {
  const StateFusion& fusion = parts_.fusion;
  if (fusion.empty()) return absl::OkStatus();
  const auto make = [&](int64_t columns, kernels::DType dtype) {
    return backend->Allocate(parts_.max_rows, columns, dtype);
  };
  COPPICE_ASSIGN_OR_RETURN(states_, make(fusion.columns(), kernels::DType::kF32));
  if (fusion.whole == nullptr) return absl::OkStatus();
  for (size_t i = 0; i < fusion.layers.size(); ++i) {
    COPPICE_ASSIGN_OR_RETURN(
        kernels::Tensor outputs,
        make(static_cast<int64_t>(i + 1) * parts_.config.hidden_size, kernels::DType::kF32));
    together_.push_back(outputs);
  }
  COPPICE_ASSIGN_OR_RETURN(whole_, make(fusion.whole->columns, backend->activation_dtype()));
  return absl::OkStatus();
}

void Transformer::Body(kernels::Ops* ops) {
  ops->CommitKv(pool_);
  if (!ops->has_rows()) return;
  if (MakesContext() && !ops->has_needs()) return StoreContext(ops);
  Embed(ops);
  const int layers = parts_.config.num_layers;
  for (int layer = 0; layer < layers; ++layer) {
    Attend(ops, layer);
    if (layer > 0) TakeState(ops, layer - 1);
    if (layer + 1 == layers) {
      if (!ops->has_needs()) return;
      ops->GatherRows({x_, attended_});
      if (!beside_.empty()) ops->GatherRows({beside_});
    }
    const LayerWeights& w = parts_.weights.layers[layer];
    if (beside_.empty()) {
      AddRowParallel(ops, *w.output, attended_);
      Mlp(ops, w);
    } else {
      ops->MatMul(*w.output, attended_, partial_, /*accumulate=*/false);
      ops->MatMul(*w.gate_up, beside_, gate_up_, /*accumulate=*/false);
      ops->Activate(parts_.config.activation, gate_up_, activated_);
      ops->MatMul(*w.down, activated_, partial_, /*accumulate=*/true);
      if (ranks_ > 1) ops->AllReduce(partial_);
    }
    if (parts_.on_layer) parts_.on_layer();
  }
  if (pair_.empty()) return;
  if (parts_.config.states.normed_output)
    ops->AddNorm(x_, {}, NormOf(parts_.weights.final_norm.get()), x_);
  ops->StoreStates(x_, pool_);  // for the rows after these
}

void Transformer::Head(kernels::Ops* ops) {
  const TransformerWeights& w = parts_.weights;
  const bool after_sum = parts_.config.norm_place == NormPlace::kAfterSum;
  const bool is_normed = !pair_.empty() && parts_.config.states.normed_output;
  Enter(ops, w.layers.back().mlp_out_norm.get(),
        after_sum ? w.layers.back().mlp_norm.get() : nullptr,
        is_normed ? nullptr : w.final_norm.get());
  kernels::Tensor hidden = normed_;
  if (w.project_out != nullptr) {
    ops->MatMul(*w.project_out, normed_, narrow_, /*accumulate=*/false);
    hidden = narrow_;
  }
  const kernels::Tensor& logits = kept_.empty() ? logits_ : kept_;
  ops->MatMul(w.head(), hidden, logits, /*accumulate=*/false);
  if (parts_.config.logit_softcap > 0) ops->SoftCap(logits, parts_.config.logit_softcap);
  if (!kept_.empty()) ops->Scatter(*w.scatter, kept_, logits_);
  ops->Select(logits_, parts_.plan.vocab.begin, parts_.config.vocab_size);
}

void Transformer::Embed(kernels::Ops* ops) {
  const TransformerWeights& w = parts_.weights;
  const kernels::Tensor& out = embedded_.empty() ? x_ : embedded_;
  // Each token's row is on one rank and the other ranks add zeros, so the sum is exact.
  ops->Embed(*w.embedding, parts_.plan.vocab.begin, parts_.config.embedding_scale, out);
  if (ranks_ > 1) ops->AllReduce(out);
  if (!pair_.empty()) return JoinStates(ops);
  if (w.project_in != nullptr) {
    ops->AddNorm(embedded_, {}, {}, narrow_);
    ops->MatMul(*w.project_in, narrow_, x_, /*accumulate=*/false);
  }
  if (w.positions != nullptr) ops->AddPositions(*w.positions, parts_.config.position_offset, x_);
}

void Transformer::StoreContext(kernels::Ops* ops) {
  for (int layer = 0; layer < parts_.config.num_layers; ++layer) {
    ops->PutStates(normed_);
    StoreKv(ops, layer, normed_);
    if (parts_.on_layer) parts_.on_layer();
  }
}

void Transformer::StoreKv(kernels::Ops* ops, int layer, kernels::Tensor input) {
  const LayerWeights& w = parts_.weights.layers[layer];
  ops->MatMul(*w.qkv, input, qkv_, /*accumulate=*/false);
  const int rope = parts_.config.layers[layer].rope;
  const kernels::HeadSteps steps = {NormOf(w.q_norm.get()), NormOf(w.k_norm.get()),
                                    rope < 0 ? nullptr : ropes_[rope].get()};
  ops->RopeAndStoreKv(layer, steps, qkv_, pool_);
}

void Transformer::JoinStates(kernels::Ops* ops) {
  const LayerWeights& w = parts_.weights.layers.front();
  kernels::Norm of_state = NormOf(w.state_norm.get());
  ops->LoadStates(*pool_, x_);
  if (parts_.config.states.normed_residual) {
    ops->AddNorm(x_, {}, of_state, x_);
    of_state.gain = nullptr;
  }
  ops->NormPair(embedded_, NormOf(w.attention_norm.get()), x_, of_state, pair_);
}

void Transformer::Attend(kernels::Ops* ops, int layer) {
  const ModelConfig& config = parts_.config;
  const LayerWeights& w = parts_.weights.layers[layer];
  const bool after_sum = config.norm_place == NormPlace::kAfterSum;
  const kernels::Weight* const norm = after_sum ? nullptr : w.attention_norm.get();
  const bool joined = layer == 0 && !pair_.empty();
  if (layer == 0) {
    if (!joined) ops->AddNorm(x_, {}, NormOf(norm), normed_);
  } else {
    const LayerWeights& before = parts_.weights.layers[layer - 1];
    Enter(ops, before.mlp_out_norm.get(), after_sum ? before.mlp_norm.get() : nullptr, norm);
  }
  if (!beside_.empty()) ops->AddNorm(x_, {}, NormOf(w.mlp_norm.get()), beside_);
  if (MakesContext()) ops->PutStates(normed_);
  StoreKv(ops, layer, joined ? pair_ : normed_);
  const LayerParts& attention = config.layers[layer];
  if (layer + 1 == config.num_layers && !ops->has_needs()) return;
  ops->Attention(layer, {config.attention_scale, config.attention_softcap, attention.window}, qkv_,
                 *pool_, attended_);
}

void Transformer::Mlp(kernels::Ops* ops, const LayerWeights& w) {
  const bool after_sum = parts_.config.norm_place == NormPlace::kAfterSum;
  Enter(ops, w.attention_out_norm.get(), after_sum ? w.attention_norm.get() : nullptr,
        after_sum ? nullptr : w.mlp_norm.get());
  if (w.router != nullptr) {
    const ExpertParts& parts = parts_.config.experts;
    ops->MixExperts({w.router.get(), w.expert_gate_up, w.expert_down, parts_.config.activation,
                     parts.chosen, parts.normalised},
                    normed_, partial_);
    if (ranks_ > 1) ops->AllReduce(partial_);
    return;
  }
  ops->MatMul(*w.gate_up, normed_, gate_up_, /*accumulate=*/false);
  ops->Activate(parts_.config.activation, gate_up_, activated_);
  AddRowParallel(ops, *w.down, activated_);
}

// After Attend of the next layer, which has completed x and has not added to it. So normed_ is free.
void Transformer::TakeState(kernels::Ops* ops, int layer) {
  const StateFusion& fusion = parts_.fusion;
  const auto norm = [&](const std::unique_ptr<kernels::Weight>& gain) {
    return kernels::Norm{gain.get(), kernels::NormKind::kRms, fusion.config.norm_epsilon};
  };
  for (size_t i = 0; i < fusion.layers.size(); ++i) {
    const StateFusion::Layer& taken = fusion.layers[i];
    if (taken.layer != layer) continue;
    if (fusion.whole == nullptr) {
      ops->AddNorm(x_, {}, norm(taken.norm), normed_);
      ops->MatMul(*taken.matrix, normed_, states_, /*accumulate=*/i > 0);
    } else if (i == 0) {
      ops->AddNorm(x_, {}, {}, together_[0]);
    } else {
      ops->NormPair(together_[i - 1], {}, x_, {}, together_[i]);
    }
  }
  if (fusion.empty() || fusion.layers.back().layer != layer) return;
  if (fusion.whole != nullptr) {
    ops->AddNorm(together_.back(), {}, norm(fusion.whole_norm), whole_);
    ops->MatMul(*fusion.whole, whole_, states_, /*accumulate=*/false);
  }
  if (fusion.last_norm != nullptr) ops->AddNorm(states_, {}, norm(fusion.last_norm), states_);
  ops->StoreStates(states_, pool_);
}

void Transformer::AddRowParallel(kernels::Ops* ops, const kernels::Weight& w,
                                 kernels::Tensor input) {
  if (!adds_apart_) return ops->MatMul(w, input, x_, /*accumulate=*/true);
  ops->MatMul(w, input, partial_, /*accumulate=*/false);
  if (ranks_ > 1) ops->AllReduce(partial_);
}

void Transformer::Enter(kernels::Ops* ops, const kernels::Weight* out_norm,
                        const kernels::Weight* after_sum, const kernels::Weight* norm) {
  const kernels::Addend addend = {partial_, NormOf(out_norm), parts_.config.residual_scale};
  if (after_sum == nullptr) return ops->AddNorm(x_, addend, NormOf(norm), normed_);
  ops->AddNorm(x_, addend, NormOf(after_sum), x_);
  ops->AddNorm(x_, {}, NormOf(norm), normed_);
}

kernels::Norm Transformer::NormOf(const kernels::Weight* gain) const {
  return {gain, parts_.config.norm, parts_.config.norm_epsilon};
}

}  // namespace coppice::model
