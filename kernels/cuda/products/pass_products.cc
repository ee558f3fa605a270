#include "kernels/cuda/products/pass_products.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/runtime/cuda_weights.h"

namespace coppice::kernels::cuda {
namespace {

class NotedOps final : public Ops {
 public:
  static NotedOps Of(Pass* pass) {
    NotedOps ops;
    pass->Body(&ops);
    pass->Head(&ops);
    return ops;
  }

  std::vector<PassProduct> products;
  bool has_experts = false;

  bool has_rows() const override { return true; }
  bool has_needs() const override { return true; }
  void CommitKv(KvPool*) override {}
  void Embed(const Weight&, int64_t, float, Tensor) override {}
  void AddPositions(const Weight&, int, Tensor) override {}
  void AddNorm(Tensor, const Addend&, const Norm&, Tensor) override {}
  void MatMul(const Weight& w, Tensor x, Tensor y, bool accumulate) override {
    products.push_back({&w, x, y, accumulate});
  }
  void RopeAndStoreKv(int, const HeadSteps&, Tensor qkv, KvPool*) override {
    if (!products.empty()) JoinRope(qkv, &products.back());
  }
  void Attention(int, const AttentionRule&, Tensor, const KvPool&, Tensor) override {}
  void Activate(Activation f, Tensor in, Tensor out) override {
    if (!products.empty()) JoinSwiGlu(f, in, out, &products.back());
  }
  void MixExperts(const Experts&, Tensor, Tensor) override { has_experts = true; }
  void SoftCap(Tensor, float) override {}
  void StoreStates(Tensor, KvPool*) override {}
  void LoadStates(const KvPool&, Tensor) override {}
  void PutStates(Tensor) override {}
  void NormPair(Tensor, const Norm&, Tensor, const Norm&, Tensor) override {}
  void GatherRows(absl::Span<const Tensor>) override {}
  void AllReduce(Tensor) override {}
  void Scatter(const Weight&, Tensor, Tensor) override {}
  void Select(Tensor, int64_t, int64_t) override {}
};

}  // namespace

bool JoinSwiGlu(Activation f, const Tensor& gate_up, const Tensor& out, PassProduct* product) {
  const Tensor& y = product->y;
  if (f != Activation::kSilu || y.data != gate_up.data || product->accumulate ||
      y.dtype != out.dtype || y.columns != 2 * out.columns) {
    return false;
  }
  product->gated = out;
  return true;
}

const float* JoinRope(const Tensor& qkv, PassProduct* product) {
  if (product->y.data != qkv.data || product->accumulate || product->y.dtype != qkv.dtype)
    return nullptr;
  product->adds_bias = false;
  return static_cast<const CudaWeight&>(*product->w).bias.floats();
}

MatMulArgs ArgsOf(const PassProduct& product, int64_t rows) {
  const auto& matrix = static_cast<const CudaWeight&>(*product.w);
  MatMulArgs args;
  args.w = matrix.values.data();
  args.x = product.x.data;
  args.y = product.y.data;
  args.type = matrix.dtype;
  args.block_values = matrix.value_dtype;
  args.y_type = product.y.dtype;
  args.rows = rows;
  args.inputs = matrix.columns;
  args.outputs = matrix.rows;
  args.accumulate = product.accumulate;
  args.bias = product.adds_bias ? matrix.bias.floats() : nullptr;
  args.gated = product.gated.data;
  // As CudaBackend::Allocate pads.
  args.room = PaddedRows(std::min(product.x.rows, product.y.rows));
  return args;
}

std::vector<PassProduct> ListProducts(Pass* pass) { return NotedOps::Of(pass).products; }

bool MixesExperts(Pass* pass) { return NotedOps::Of(pass).has_experts; }

}  // namespace coppice::kernels::cuda
