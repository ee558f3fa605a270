#include "kernels/cuda/cuda_ops.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/block_format.h"
#include "kernels/cuda/products/pass_products.h"
#include "kernels/cuda/runtime/cuda_weights.h"

namespace coppice::kernels::cuda {
namespace {

DevicePool PoolOf(const KvPool& pool) {
  const KvPoolShape& shape = pool.shape;
  return {static_cast<const CudaKvPool&>(pool).storage.data(),
          shape.dtype,
          shape.layers,
          shape.kv_heads,
          shape.head_dim,
          shape.blocks};
}

int QHeads(const Tensor& qkv, const KvPoolShape& shape) {
  const int64_t heads = qkv.columns / shape.head_dim;
  COPPICE_CHECK_MSG(qkv.columns % shape.head_dim == 0 && heads > 2 * shape.kv_heads &&
                        heads % shape.kv_heads == 0,
                    absl::StrCat("qkv of ", qkv.columns, " columns for ", shape.kv_heads,
                                 " KV heads of ", shape.head_dim));
  return static_cast<int>(heads) - 2 * shape.kv_heads;
}

// Of n values.
NormArgs ArgsOf(const Norm& norm, int64_t n) {
  if (norm.empty()) return {};
  const auto& gain = static_cast<const CudaWeight&>(*norm.gain);
  COPPICE_CHECK_MSG(gain.columns == n, absl::StrCat("a gain of ", gain.columns, " for ", n));
  return {gain.values.floats(), gain.bias.floats(), norm.kind, norm.epsilon};
}

}  // namespace

void CudaOps::Begin(const StepPlan& plan, const StepShape& shape) {
  plan_ = &plan;
  shape_ = shape;
  rows_ = shape.rows;
  gathered_ = false;
  failure_ = absl::OkStatus();
  recorded_.clear();
  work_.reset();
  selection_.reset();
}

std::vector<DeviceOp> CudaOps::Take() { return std::exchange(recorded_, {}); }

// The memory of a tensor holds its rows padded (CudaBackend::Allocate).
void CudaOps::CheckRows(const Tensor& tensor, int64_t columns) const {
  COPPICE_CHECK_MSG(PaddedRows(tensor.rows) >= rows_ && tensor.columns == columns,
                    absl::StrCat("a tensor ", DTypeName(tensor.dtype), " [", tensor.rows, ", ",
                                 tensor.columns, "] for ", rows_, " rows of ", columns));
}

float* CudaOps::Floats(const Tensor& tensor, int64_t columns) const {
  CheckRows(tensor, columns);
  COPPICE_CHECK(tensor.dtype == DType::kF32);
  return static_cast<float*>(tensor.data);
}

void CudaOps::CommitKv(KvPool* pool) {
  recorded_.push_back(CommitOp{PoolOf(*pool), StatesOf(*pool)});
}

void CudaOps::Embed(const Weight& w, int64_t first_row, float scale, Tensor x) {
  const auto& matrix = static_cast<const CudaWeight&>(w);
  recorded_.push_back(EmbedArgs{matrix.values.data(), w.dtype, w.rows, w.columns, first_row, scale,
                                Floats(x, w.columns), matrix.value_dtype});
}

void CudaOps::AddPositions(const Weight& w, int offset, Tensor x) {
  const auto& matrix = static_cast<const CudaWeight&>(w);
  recorded_.push_back(PositionArgs{matrix.values.data(), w.dtype, w.columns, offset,
                                   Floats(x, w.columns), matrix.value_dtype});
}

void CudaOps::AddNorm(Tensor x, const Addend& addend, const Norm& norm, Tensor out) {
  const int64_t n = x.columns;
  CheckRows(out, n);
  AddNormArgs args;
  args.x = Floats(x, n);
  if (!addend.empty()) {
    args.addend = Floats(addend.values, n);
    args.addend_norm = ArgsOf(addend.norm, n);
    args.scale = addend.scale;
  }
  args.norm = ArgsOf(norm, n);
  args.out = out.data;
  args.dtype = out.dtype;
  args.rows = rows_;
  args.columns = n;
  const AllReduceOp* const sum =
      recorded_.empty() ? nullptr : std::get_if<AllReduceOp>(&recorded_.back());
  if (sum != nullptr && args.plain() && sum->values == args.addend && sum->count == rows_ * n &&
      sum->collectives->CanNorm(rows_, n)) {
    recorded_.back() = AllReduceNormOp{sum->collectives, args};
  } else {
    recorded_.push_back(args);
  }
}

void CudaOps::StoreStates(Tensor x, KvPool* pool) {
  const DeviceStates states = StatesOf(*pool);
  COPPICE_CHECK(states.columns > 0);
  recorded_.push_back(StoreStatesArgs{Floats(x, states.columns), states, gathered_});
}

void CudaOps::LoadStates(const KvPool& pool, Tensor x) {
  const DeviceStates states = StatesOf(pool);
  COPPICE_CHECK(states.columns > 0 && !gathered_);
  COPPICE_CHECK(static_cast<int>(plan_->state.size()) == plan_->rows());
  recorded_.push_back(LoadStatesArgs{states, Floats(x, states.columns)});
}

void CudaOps::PutStates(Tensor x) {
  CheckRows(x, x.columns);
  COPPICE_CHECK(!gathered_ && static_cast<int>(plan_->state.size()) == plan_->rows());
  if (x.columns % kStateUnit != 0) {
    failure_ = absl::InvalidArgumentError(absl::StrCat("hidden_size: ", x.columns,
                                                       ", expected a multiple of ", kStateUnit,
                                                       " for a block drafter on the cuda backend"));
    return;
  }
  recorded_.push_back(PutStatesArgs{x.data, x.dtype, static_cast<int32_t>(x.columns)});
}

void CudaOps::NormPair(Tensor a, const Norm& of_a, Tensor b, const Norm& of_b, Tensor out) {
  const int64_t n = a.columns, m = b.columns;
  CheckRows(out, n + m);
  recorded_.push_back(NormPairArgs{{Floats(a, n), ArgsOf(of_a, n), n},
                                   {Floats(b, m), ArgsOf(of_b, m), m},
                                   out.data,
                                   out.dtype,
                                   rows_});
}

void CudaOps::MatMul(const Weight& w, Tensor x, Tensor y, bool accumulate) {
  CheckRows(x, w.columns);
  CheckRows(y, w.rows);
  const DType values =
      IsBlockFormat(w.dtype) ? static_cast<const CudaWeight&>(w).value_dtype : w.dtype;
  COPPICE_CHECK_MSG(x.dtype == values,
                    absl::StrCat("x is ", DTypeName(x.dtype), ", the weight ", DTypeName(values)));
  if (rows_ == 0) return;
  product_ = {&w, x, y, accumulate};
  recorded_.push_back(ArgsOf(product_, rows_));
}

PassProduct* CudaOps::LastProduct() {
  if (recorded_.empty() || !std::holds_alternative<MatMulArgs>(recorded_.back())) return nullptr;
  return &product_;
}

void CudaOps::RopeAndStoreKv(int layer, const HeadSteps& steps, Tensor qkv, KvPool* pool) {
  const KvPoolShape& shape = pool->shape;
  CheckRows(qkv, qkv.columns);
  COPPICE_CHECK(steps.q_norm.empty() == steps.k_norm.empty());
  COPPICE_CHECK(CanStoreKv(qkv.dtype, shape.dtype));
  const KvPlace place = shape.place(layer);
  COPPICE_CHECK(place.layer >= 0 && place.layer < shape.layers);
  RopeArgs args;
  args.qkv = qkv.data;
  args.dtype = qkv.dtype;
  args.q_heads = QHeads(qkv, shape);
  args.layer = place.layer;
  if (!steps.q_norm.empty()) {
    args.norms_together = steps.q_norm.gain->columns != shape.head_dim;
    const int64_t q = args.norms_together ? args.q_heads : 1;
    const int64_t k = args.norms_together ? shape.kv_heads : 1;
    args.q_norm = ArgsOf(steps.q_norm, q * shape.head_dim);
    args.k_norm = ArgsOf(steps.k_norm, k * shape.head_dim);
  }
  if (steps.rope != nullptr) {
    const auto& table = static_cast<const CudaRopeTable&>(*steps.rope);
    COPPICE_CHECK(table.rotary_dim <= shape.head_dim);
    args.rotary_dim = table.rotary_dim;
    args.cos = table.cos.floats();
    args.sin = table.sin.floats();
  }
  if (PassProduct* product = LastProduct(); product != nullptr) {
    args.bias = JoinRope(qkv, product);
    recorded_.back() = ArgsOf(*product, rows_);
  }
  recorded_.push_back(RopeOp{args, PoolOf(*pool), layer, place.group});
}

void CudaOps::Attention(int layer, const AttentionRule& rule, Tensor qkv, const KvPool& pool,
                        Tensor out) {
  const KvPoolShape& shape = pool.shape;
  const int q_heads = QHeads(qkv, shape);
  CheckRows(qkv, qkv.columns);
  CheckRows(out, int64_t{q_heads} * shape.head_dim);
  COPPICE_CHECK(qkv.dtype == out.dtype && CanStoreKv(qkv.dtype, shape.dtype));
  const KvPlace place = shape.place(layer);
  COPPICE_CHECK(place.layer >= 0 && place.layer < shape.layers);
  COPPICE_CHECK(rule.scale > 0 && rule.softcap >= 0 && rule.window >= 0);
  AttentionOp op = {{qkv.data, out.data, qkv.dtype, q_heads, place.layer, rule},
                    PoolOf(pool),
                    layer,
                    place.group};
  const int classes = TileClasses(qkv.dtype, op.pool, device_.block_shared_bytes);
  op.tiled = classes > 0 && q_heads / shape.kv_heads <= kTileRows[classes - 1];
  op.wide = op.tiled && classes == kTileClasses && wide_attention_ && device_.has_wgmma &&
            CanAttendWide(qkv.dtype, rule, op.pool, device_.block_shared_bytes);
  if (op.tiled) ShapeWork(op.pool, q_heads, classes, op.wide);
  recorded_.push_back(op);
}

void CudaOps::ShapeWork(const DevicePool& pool, int q_heads, int classes, bool wide) {
  const int group = q_heads / pool.kv_heads;
  if (work_.has_value()) {
    COPPICE_CHECK(work_->group == group && work_->kv_heads == pool.kv_heads &&
                  work_->head_dim == pool.head_dim);
    return;
  }
  WorkShape& shape = work_.emplace();
  shape.group = group;
  shape.kv_heads = pool.kv_heads;
  shape.head_dim = pool.head_dim;
  shape.classes = classes;
  shape.exact = exact_;
  shape.multiprocessors = device_.multiprocessors;
  for (int c = 0; c < kTileClasses; ++c) {
    shape.workers[c] = device_.multiprocessors *
                       TileBlocksPerMultiprocessor(c, pool.head_dim, device_.shared_bytes, wide);
  }
}

void CudaOps::Activate(Activation f, Tensor in, Tensor out) {
  const bool gated = in.columns != out.columns;
  CheckRows(out, out.columns);
  CheckRows(in, gated ? 2 * out.columns : out.columns);
  COPPICE_CHECK(in.dtype == out.dtype);
  PassProduct* const product = LastProduct();
  if (product != nullptr && JoinSwiGlu(f, in, out, product)) {
    recorded_.back() = ArgsOf(*product, rows_);
    return;
  }
  recorded_.push_back(ActivateArgs{f, gated, in.data, out.data, out.dtype, rows_, out.columns});
}

void CudaOps::MixExperts(const Experts& experts, Tensor x, Tensor out) {
  CheckRows(x, x.columns);
  CheckRows(out, x.columns);
  COPPICE_CHECK(experts_ != nullptr);
  if (rows_ == 0) return;
  absl::StatusOr<ExpertsArgs> args = experts_->ArgsOf(experts, x, out);
  if (!args.ok()) {
    failure_ = args.status();
    return;
  }
  args->rows = static_cast<int32_t>(rows_);
  args->after_gather = gathered_;
  recorded_.push_back(*args);
}

void CudaOps::SoftCap(Tensor x, float cap) {
  float* const values = Floats(x, x.columns);
  if (rows_ == 0) return;
  recorded_.push_back(SoftCapArgs{values, rows_ * x.columns, cap});
}

// Recorded even if every row has a need, because the rows with needs differ between steps of one
// size.
void CudaOps::GatherRows(absl::Span<const Tensor> tensors) {
  for (size_t first = 0; first < tensors.size(); first += GatherArgs::kMost) {
    GatherArgs args;
    GatherArgs::Of* of = args.of;
    for (const Tensor& tensor : tensors.subspan(first, GatherArgs::kMost)) {
      const int64_t row_bytes = tensor.columns * static_cast<int64_t>(DTypeSize(tensor.dtype));
      CheckRows(tensor, tensor.columns);
      COPPICE_CHECK_MSG(row_bytes % 4 == 0, absl::StrCat("rows of ", row_bytes, " bytes"));
      *of++ = {tensor.data, row_bytes};
    }
    recorded_.push_back(args);
  }
  rows_ = shape_.needs;
  gathered_ = true;
}

void CudaOps::AllReduce(Tensor x) {
  float* const values = Floats(x, x.columns);
  if (collectives_ == nullptr || rows_ == 0) return;
  recorded_.push_back(AllReduceOp{collectives_, values, rows_ * x.columns});
}

void CudaOps::Scatter(const Weight& w, Tensor kept, Tensor wide) {
  if (rows_ == 0) return;
  const DeviceBuffer& place = static_cast<const CudaWeight&>(w).values;
  recorded_.push_back(ScatterArgs{reinterpret_cast<const int32_t*>(place.data()),
                                  Floats(kept, w.columns), Floats(wide, w.rows), rows_, w.columns,
                                  w.rows});
}

void CudaOps::Select(Tensor logits, int64_t first_token, int64_t vocab) {
  Floats(logits, logits.columns);
  selection_ =
      LogitRows{static_cast<const float*>(logits.data), logits.columns, first_token, vocab};
  recorded_.push_back(SelectOp{*selection_});
}

}  // namespace coppice::kernels::cuda
