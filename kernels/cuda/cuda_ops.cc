#include "kernels/cuda/cuda_ops.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/cuda/cuda_weights.h"
#include "kernels/cuda/device_error.h"
#include "kernels/cuda/pass_products.h"

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

}  // namespace

void CudaOps::Begin(const StepPlan& plan, const DeviceStep& step) {
  plan_ = &plan;
  step_ = step;
  rows_ = plan.rows();
  status_ = absl::OkStatus();
  work_made_ = false;
}

void CudaOps::CheckRows(const Tensor& tensor, int64_t columns) const {
  COPPICE_CHECK_MSG(tensor.rows >= rows_ && tensor.columns == columns,
                    absl::StrCat("a tensor ", DTypeName(tensor.dtype), " [", tensor.rows, ", ",
                                 tensor.columns, "] for ", rows_, " rows of ", columns));
}

float* CudaOps::Floats(const Tensor& tensor, int64_t columns) const {
  CheckRows(tensor, columns);
  COPPICE_CHECK(tensor.dtype == DType::kF32);
  return static_cast<float*>(tensor.data);
}

void CudaOps::Launched(absl::string_view kernel, int layer) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  const std::string of_layer = layer < 0 ? "" : absl::StrCat(" of layer ", layer);
  status_ = CudaStatus(error, "kernel launch", absl::StrCat(kernel, of_layer));
}

void CudaOps::CommitKv(KvPool* pool) {
  if (!status_.ok() || plan_->commits.empty()) return;
  cuda::CommitKv(step_, PoolOf(*pool), stream_->get());
  Launched("commit of KV");
}

void CudaOps::Embed(const Weight& w, int64_t first_row, Tensor x) {
  if (!status_.ok()) return;
  const auto& matrix = static_cast<const CudaWeight&>(w);
  cuda::Embed(step_,
              {matrix.values.data(), w.dtype, w.rows, w.columns, first_row, Floats(x, w.columns)},
              stream_->get());
  Launched("embedding");
}

void CudaOps::AddNorm(Tensor x, Tensor addend, const Weight& gain, float epsilon, Tensor out) {
  if (!status_.ok()) return;
  const int64_t n = gain.columns;
  CheckRows(out, n);
  AddNormArgs args;
  args.x = Floats(x, n);
  args.addend = addend.empty() ? nullptr : Floats(addend, n);
  args.gain = static_cast<const CudaWeight&>(gain).values.floats();
  args.out = out.data;
  args.dtype = out.dtype;
  args.rows = rows_;
  args.columns = n;
  args.epsilon = epsilon;
  cuda::AddNorm(args, stream_->get());
  Launched("norm");
}

void CudaOps::MatMul(const Weight& w, Tensor x, Tensor y, bool accumulate) {
  if (!status_.ok()) return;
  CheckRows(x, w.columns);
  CheckRows(y, w.rows);
  COPPICE_CHECK_MSG(x.dtype == w.dtype,
                    absl::StrCat("x is ", DTypeName(x.dtype), ", the weight ", DTypeName(w.dtype)));
  status_ = products_->Enqueue(ArgsOf({&w, x, y, accumulate}, rows_));
}

void CudaOps::RopeAndStoreKv(int layer, const RopeTable& rope, Tensor qkv, KvPool* pool) {
  if (!status_.ok()) return;
  const KvPoolShape& shape = pool->shape;
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  CheckRows(qkv, qkv.columns);
  COPPICE_CHECK(rope.head_dim == shape.head_dim);
  COPPICE_CHECK(layer >= 0 && layer < shape.layers);
  cuda::RopeAndStoreKv(
      step_,
      {qkv.data, qkv.dtype, QHeads(qkv, shape), layer, table.cos.floats(), table.sin.floats()},
      PoolOf(*pool), stream_->get());
  Launched("rotary positions", layer);
}

void CudaOps::Attention(int layer, Tensor qkv, const KvPool& pool, Tensor out) {
  if (!status_.ok()) return;
  const KvPoolShape& shape = pool.shape;
  const int q_heads = QHeads(qkv, shape);
  CheckRows(qkv, qkv.columns);
  CheckRows(out, int64_t{q_heads} * shape.head_dim);
  COPPICE_CHECK(qkv.dtype == out.dtype);
  COPPICE_CHECK(layer >= 0 && layer < shape.layers);
  const DevicePool device_pool = PoolOf(pool);
  const AttentionArgs args = {qkv.data, out.data, qkv.dtype, q_heads, layer};
  const int group = q_heads / shape.kv_heads;
  if (!CanTileAttention(qkv.dtype, device_pool) || group > kTileRows[kTileClasses - 1]) {
    cuda::Attention(step_, args, device_pool, stream_->get());
  } else if (MakeWork(device_pool, q_heads)) {
    TiledAttention(step_, args, work_.work(), device_pool, stream_->get());
  } else {
    return;
  }
  Launched("attention", layer);
}

bool CudaOps::MakeWork(const DevicePool& pool, int q_heads) {
  if (work_made_) return true;
  WorkShape shape;
  shape.group = q_heads / pool.kv_heads;
  shape.kv_heads = pool.kv_heads;
  shape.head_dim = pool.head_dim;
  for (int c = 0; c < kTileClasses; ++c) {
    shape.workers[c] = device_.multiprocessors *
                       TileBlocksPerMultiprocessor(c, pool.head_dim, device_.shared_bytes);
  }
  status_ = work_.Upload(*plan_, shape, stream_);
  work_made_ = status_.ok();
  return work_made_;
}

void CudaOps::SwiGlu(Tensor gate_up, Tensor out) {
  if (!status_.ok()) return;
  CheckRows(out, out.columns);
  CheckRows(gate_up, 2 * out.columns);
  COPPICE_CHECK(gate_up.dtype == out.dtype);
  cuda::SwiGlu(gate_up.data, out.data, out.dtype, rows_, out.columns, stream_->get());
  Launched("SwiGLU");
}

void CudaOps::GatherRows(absl::Span<const Tensor> tensors) {
  if (!status_.ok() || step_.needs == step_.rows) return;  // every row has a need
  for (const Tensor& tensor : tensors) {
    const int64_t row_bytes = tensor.columns * static_cast<int64_t>(DTypeSize(tensor.dtype));
    CheckRows(tensor, tensor.columns);
    COPPICE_CHECK_MSG(row_bytes % 4 == 0, absl::StrCat("rows of ", row_bytes, " bytes"));
    cuda::GatherRows(step_, tensor.data, row_bytes, stream_->get());
    Launched("gather of rows");
    if (!status_.ok()) return;
  }
  rows_ = static_cast<int64_t>(plan_->needs.size());
}

void CudaOps::Select(Tensor logits, int64_t first_token, int64_t vocab) {
  if (!status_.ok()) return;
  Floats(logits, logits.columns);
  status_ = step_rows_->Download(*plan_, logits, first_token, vocab, stream_);
}

}  // namespace coppice::kernels::cuda
