#include "model/decoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "model/batch_check.h"

namespace coppice {
namespace {

std::unique_ptr<float[]> MakeBuffer(int64_t rows, int64_t width) {
  return std::unique_ptr<float[]>(new float[static_cast<size_t>(rows * width)]);
}

AttentionContext ContextOf(const ForwardBatch& batch) {
  return {batch.row_table, batch.prefix_len,  batch.chain_begin,
          batch.chain,     batch.table_begin, batch.table};
}

}  // namespace

Decoder::Decoder(DecoderParts parts, Backend* backend, Communicator* communicator)
    : parts_(std::move(parts)),
      backend_(backend),
      communicator_(communicator),
      d_(parts_.config.hidden_size) {
  const ModelConfig& config = parts_.config;
  COPPICE_CHECK(config.norm == NormKind::kRmsNorm && config.position == PositionKind::kRope &&
                config.mlp == MlpKind::kSwiGlu);
  COPPICE_CHECK(parts_.max_rows > 0);
  const ShardPlan& plan = parts_.plan;
  const int64_t rows = parts_.max_rows;
  rope_ = backend->MakeRope(config.rope);
  x_ = MakeBuffer(rows, d_);
  normed_ = MakeBuffer(rows, d_);
  qkv_ = MakeBuffer(rows, (plan.q_heads.size() + 2 * plan.kv_heads.size()) * config.head_dim);
  attended_ = MakeBuffer(rows, plan.q_heads.size() * config.head_dim);
  gate_up_ = MakeBuffer(rows, 2 * plan.intermediate.size());
  activated_ = MakeBuffer(rows, plan.intermediate.size());
  piece_ = MakeBuffer(rows, plan.largest_vocab);
  if (communicator->size() == 1) return;
  partial_ = MakeBuffer(rows, d_);
  if (communicator->rank() != 0) return;
  gathered_ = MakeBuffer(rows, int64_t{plan.largest_vocab} * communicator->size());
  logits_ = MakeBuffer(rows, config.vocab_size);
}

KvPoolShape Decoder::kv_shape(int64_t blocks) const {
  return {parts_.config.num_layers, parts_.plan.kv_heads.size(), parts_.config.head_dim, blocks,
          parts_.dtype};
}

size_t Decoder::kv_block_bytes() const {
  const size_t token =
      size_t{2} * parts_.plan.kv_heads.size() * parts_.config.head_dim * DTypeSize(parts_.dtype);
  return token * kBlockSize * parts_.config.num_layers;
}

absl::StatusOr<absl::Span<const float>> Decoder::Forward(const ForwardBatch& batch, KvPool* pool,
                                                         absl::FunctionRef<void()> before_head) {
  const ModelConfig& config = parts_.config;
  COPPICE_RETURN_IF_ERROR(CheckBatch(
      batch, {parts_.max_rows, config.vocab_size, config.max_positions, pool->shape.blocks}));
  if (!batch.commits.empty()) backend_->CopyKv(batch.commits, pool);
  if (batch.rows() == 0) return absl::Span<const float>();
  COPPICE_RETURN_IF_ERROR(Embed(batch));
  int64_t rows = batch.rows();
  for (int layer = 0; layer < config.num_layers; ++layer) {
    COPPICE_ASSIGN_OR_RETURN(rows, Attend(batch, layer, pool));
    if (rows == 0) return absl::Span<const float>();
    COPPICE_RETURN_IF_ERROR(Mlp(parts_.weights.layers[layer], rows));
    if (parts_.on_layer) parts_.on_layer();
  }
  before_head();
  return Head(rows);
}

// Every token lies in one rank's rows and is zero on the others: the sum is exact.
absl::Status Decoder::Embed(const ForwardBatch& batch) {
  backend_->Embed(*parts_.weights.embedding, parts_.plan.vocab.begin, batch.token, x_.get());
  if (communicator_->size() == 1) return absl::OkStatus();
  return communicator_->AllReduceSum(absl::MakeSpan(x_.get(), batch.rows() * d_));
}

absl::StatusOr<int64_t> Decoder::Attend(const ForwardBatch& batch, int layer, KvPool* pool) {
  const LayerWeights& w = parts_.weights.layers[layer];
  const int q_heads = parts_.plan.q_heads.size();
  int64_t rows = batch.rows();
  backend_->RmsNorm(x_.get(), w.attention_norm, parts_.config.norm_epsilon, rows, d_,
                    normed_.get());
  backend_->MatMul(*w.qkv, normed_.get(), rows, qkv_.get(), w.qkv_bias, /*accumulate=*/false);
  backend_->RopeAndStoreKv(qkv_.get(), batch.position, batch.slot, q_heads, *rope_, layer, pool);
  const bool last = layer + 1 == parts_.config.num_layers;
  if (last && batch.logits_rows.empty()) return 0;
  backend_->Attention(qkv_.get(), q_heads, ContextOf(batch), layer, *pool, attended_.get());
  if (last) {
    KeepLogitsRows(batch.logits_rows, d_, x_.get());
    KeepLogitsRows(batch.logits_rows, int64_t{q_heads} * parts_.config.head_dim, attended_.get());
    rows = static_cast<int64_t>(batch.logits_rows.size());
  }
  COPPICE_RETURN_IF_ERROR(AddRowParallel(*w.output, attended_.get(), w.output_bias, rows));
  return rows;
}

// `wanted` is ascending, so a row never moves over one that is still to move.
void Decoder::KeepLogitsRows(const std::vector<int32_t>& wanted, int64_t width,
                             float* values) const {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != static_cast<int32_t>(i))
      std::copy_n(values + wanted[i] * width, width, values + i * width);
  }
}

absl::Status Decoder::Mlp(const LayerWeights& w, int64_t rows) {
  backend_->RmsNorm(x_.get(), w.mlp_norm, parts_.config.norm_epsilon, rows, d_, normed_.get());
  backend_->MatMul(*w.gate_up, normed_.get(), rows, gate_up_.get(), w.gate_up_bias,
                   /*accumulate=*/false);
  backend_->SwiGlu(gate_up_.get(), rows, parts_.plan.intermediate.size(), activated_.get());
  return AddRowParallel(*w.down, activated_.get(), w.down_bias, rows);
}

absl::Status Decoder::AddRowParallel(const PackedMatrix& w, const float* input,
                                     absl::Span<const float> bias, int64_t rows) {
  if (communicator_->size() == 1) {
    backend_->MatMul(w, input, rows, x_.get(), bias, /*accumulate=*/true);
    return absl::OkStatus();
  }
  backend_->MatMul(w, input, rows, partial_.get(), bias, /*accumulate=*/false);
  COPPICE_RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(partial_.get(), rows * d_)));
  backend_->Add(x_.get(), partial_.get(), rows * d_);
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> Decoder::Head(int64_t rows) {
  const int64_t vocab = parts_.config.vocab_size;
  backend_->RmsNorm(x_.get(), parts_.weights.final_norm, parts_.config.norm_epsilon, rows, d_,
                    normed_.get());
  backend_->MatMul(parts_.weights.head(), normed_.get(), rows, piece_.get(), {},
                   /*accumulate=*/false);
  const int ranks = communicator_->size();
  if (ranks == 1) return absl::MakeConstSpan(piece_.get(), rows * vocab);
  const int64_t padded = rows * parts_.plan.largest_vocab;
  const int64_t used = rows * parts_.plan.vocab.size();
  std::fill(piece_.get() + used, piece_.get() + padded, 0.0f);
  const bool leader = communicator_->rank() == 0;
  COPPICE_RETURN_IF_ERROR(
      communicator_->Gather(absl::MakeConstSpan(piece_.get(), padded),
                            absl::MakeSpan(gathered_.get(), leader ? padded * ranks : 0)));
  if (!leader) return absl::Span<const float>();
  ArrangeGathered(rows);
  return absl::MakeConstSpan(logits_.get(), rows * vocab);
}

// gathered_ [ranks][rows, that rank's shard, padded] -> logits_ [rows, vocab].
void Decoder::ArrangeGathered(int64_t rows) {
  const int64_t vocab = parts_.config.vocab_size;
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    const Range shard = BalancedPiece(parts_.config.vocab_size, rank, communicator_->size());
    const float* piece = gathered_.get() + rank * rows * parts_.plan.largest_vocab;
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(piece + row * shard.size(), shard.size(),
                  logits_.get() + row * vocab + shard.begin);
    }
  }
}

}  // namespace coppice
