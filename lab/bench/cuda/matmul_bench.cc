#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/products/product_tuner.h"
#include "kernels/cuda/runtime/cuda_weights.h"
#include "lab/bench/cuda/bench_parts.h"
#include "lab/bench/cuda/device_random.h"
#include "lab/bench/cuda/llama_shape.h"

namespace coppice::bench {
namespace {

using kernels::DType;
using kernels::cuda::DeviceBuffer;
using kernels::cuda::MatMulArgs;
using kernels::cuda::MatrixProducts;
using kernels::cuda::PassProduct;
using kernels::cuda::ProductChoice;

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
constexpr int64_t kRoom = 64;

BenchCase CaseOf(const Product& product, int rows, const std::string& how) {
  return {"matmul",
          absl::StrCat(product.name, " ", product.outputs, " x ", product.inputs, ", ", rows,
                       " rows, ", how),
          static_cast<double>(product.outputs) * static_cast<double>(product.inputs) * kValueBytes};
}

// One product in device memory, with random values.
class ProductBench {
 public:
  absl::Status Create(const Product& product, const std::string& tuning_cache, DeviceTimer* timer) {
    product_ = product;
    timer_ = timer;
    weight_.rows = product.outputs;
    weight_.columns = product.inputs;
    weight_.dtype = DType::kBF16;
    COPPICE_ASSIGN_OR_RETURN(weight_.values,
                             Values(product.outputs * product.inputs, DType::kBF16));
    COPPICE_ASSIGN_OR_RETURN(x_, Values(kRoom * product.inputs, DType::kBF16));
    COPPICE_ASSIGN_OR_RETURN(y_, Values(kRoom * product.outputs, product.y_type));
    pass_ = {&weight_,
             {x_.data(), DType::kBF16, kRoom, product.inputs},
             {y_.data(), product.y_type, kRoom, product.outputs},
             product.accumulate};
    COPPICE_ASSIGN_OR_RETURN(products_, MatrixProducts::Create(timer->stream(), /*exact=*/false,
                                                               timer->facts().has_clusters));
    return TuneProducts({{pass_}, tuning_cache.empty() ? "auto" : tuning_cache, {}}, timer->facts(),
                        timer->stream(), products_.get())
        .status();
  }

  absl::Status Run(int rows, Report* report) {
    const MatMulArgs args = ArgsOf(pass_, rows);
    COPPICE_ASSIGN_OR_RETURN(const std::vector<ProductChoice> choices,
                             products_->Candidates(MatrixProducts::KeyOf(args)));
    COPPICE_ASSIGN_OR_RETURN(const Timing first, Time(args, choices[0]));
    report->Add(CaseOf(product_, rows, "first of cuBLASLt"), first);
    Timing skinny;
    int splits = 0;
    for (const ProductChoice& choice : choices) {
      if (choice.kind != ProductChoice::Kind::kSkinny) continue;
      COPPICE_ASSIGN_OR_RETURN(const Timing timing, Time(args, choice));
      if (splits != 0 && timing.us >= skinny.us) continue;
      skinny = timing;
      splits = choice.splits;
    }
    if (splits != 0) report->Add(CaseOf(product_, rows, absl::StrCat("skinny/", splits)), skinny);
    COPPICE_ASSIGN_OR_RETURN(const Timing tuned,
                             timer_->Time([&] { return products_->Enqueue(args); }));
    report->Add(CaseOf(product_, rows, "tuned"), tuned);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<DeviceBuffer> Values(int64_t count, DType dtype) {
    return RandomBuffer(count, dtype, 1, ++seed_, timer_->stream());
  }
  absl::StatusOr<Timing> Time(const MatMulArgs& args, const ProductChoice& choice) {
    return timer_->Time([&] { return products_->Enqueue(args, choice); });
  }

  Product product_;
  DeviceTimer* timer_ = nullptr;
  uint64_t seed_ = 0;
  kernels::cuda::CudaWeight weight_;
  DeviceBuffer x_, y_;
  PassProduct pass_;
  std::unique_ptr<MatrixProducts> products_;
};

}  // namespace

absl::Status BenchMatMul(Report* report, DeviceTimer* timer) {
  for (const Product& product : kProducts) {
    std::unique_ptr<ProductBench> bench;
    for (const int rows : kRows) {
      if (!report->Wants(CaseOf(product, rows, "three ways"))) continue;
      if (bench == nullptr) {
        bench = std::make_unique<ProductBench>();
        COPPICE_RETURN_IF_ERROR(bench->Create(product, report->tuning_cache(), timer));
      }
      COPPICE_RETURN_IF_ERROR(bench->Run(rows, report));
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice::bench
