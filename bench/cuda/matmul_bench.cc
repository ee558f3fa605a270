#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/cuda/bench_parts.h"
#include "bench/cuda/device_random.h"
#include "bench/cuda/llama_shape.h"
#include "kernels/cuda/cublas_matmul.h"

namespace coppice::bench {
namespace {

using kernels::DType;
using kernels::cuda::CublasMatMul;
using kernels::cuda::DeviceBuffer;

struct Product {
  const char* name;
  int64_t outputs, inputs;
  DType y_type;
  bool accumulate;
};

// As the decoder calls them: the residual stream and the logits are f32.
constexpr Product kProducts[] = {
    {"qkv", kQkvColumns, kHidden, DType::kBF16, false},
    {"output", kHidden, kQHeads* kHeadDim, DType::kF32, true},
    {"gate_up", 2 * kIntermediate, kHidden, DType::kBF16, false},
    {"down", kHidden, kIntermediate, DType::kF32, true},
    {"head", kVocabulary, kHidden, DType::kF32, false},
};
constexpr int kRows[] = {1, 8, 34, 64};

absl::StatusOr<Timing> TimeProduct(const Product& product, int64_t rows, DeviceTimer* timer,
                                   CublasMatMul* products) {
  const int64_t outputs = product.outputs, inputs = product.inputs;
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer w,
                           RandomBuffer(outputs * inputs, DType::kBF16, 1, 1, timer->stream()));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer x,
                           RandomBuffer(rows * inputs, DType::kBF16, 1, 2, timer->stream()));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer y,
                           RandomBuffer(rows * outputs, product.y_type, 1, 3, timer->stream()));
  return timer->Time([&] {
    return products->Enqueue({w.data(), x.data(), y.data(), DType::kBF16, product.y_type, rows,
                              inputs, outputs, product.accumulate});
  });
}

}  // namespace

absl::Status BenchMatMul(Report* report, DeviceTimer* timer) {
  std::unique_ptr<CublasMatMul> products;
  for (const Product& product : kProducts) {
    for (const int rows : kRows) {
      const BenchCase bench_case = {
          "matmul",
          absl::StrCat(product.name, " ", product.outputs, " x ", product.inputs, ", ", rows,
                       " rows"),
          static_cast<double>(product.outputs) * static_cast<double>(product.inputs) * kValueBytes};
      if (!report->Wants(bench_case)) continue;
      if (products == nullptr) {
        COPPICE_ASSIGN_OR_RETURN(products, CublasMatMul::Create(timer->stream()));
      }
      COPPICE_ASSIGN_OR_RETURN(const Timing timing,
                               TimeProduct(product, rows, timer, products.get()));
      report->Add(bench_case, timing);
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice::bench
