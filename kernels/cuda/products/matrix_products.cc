#include "kernels/cuda/products/matrix_products.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/cuda/ops/block_matrix.h"
#include "kernels/cuda/ops/block_product.h"
#include "kernels/cuda/ops/gemm_skinny.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/ops/row_product.h"
#include "kernels/cuda/runtime/device_error.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kCountersName[] = "the counters of matrix products";
constexpr int64_t kMostTiles = 16384;  // tiles: a million outputs
constexpr int kProposals = 8;          // algorithms that cuBLASLt proposes
// Runs that the inputs are cut into. More do not pay, since their sums are written and read.
constexpr int kSplits[] = {1, 2, 3, 4, 6, 8, 12, 16};
constexpr int64_t kLeastStages = 4;  // stages per run

// The only choice for a key, if it has one: kRows in exact mode, kBlocks for blocks.
std::optional<ProductChoice> OnlyChoice(const ProductKey& key, bool exact) {
  ProductChoice only;
  only.kind = ProductChoice::Kind::kBlocks;
  if (IsDeviceBlocks(key.type)) return only;
  only.kind = ProductChoice::Kind::kRows;
  if (exact) return only;
  return std::nullopt;
}

absl::Status Launched(absl::string_view kernel, const ProductKey& key) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return absl::OkStatus();
  return CudaStatus(error, "kernel launch", absl::StrCat(kernel, " of ", ProductName(key)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MatrixProducts>> MatrixProducts::Create(DeviceStream* stream,
                                                                       bool exact, bool clusters) {
  std::unique_ptr<MatrixProducts> made(new MatrixProducts(stream, exact, clusters));
  COPPICE_ASSIGN_OR_RETURN(made->library_, CublasMatMul::Create(stream));
  COPPICE_ASSIGN_OR_RETURN(made->counters_,
                           DeviceBuffer::Allocate(kMostTiles * sizeof(uint32_t), kCountersName));
  COPPICE_RETURN_IF_ERROR(
      stream->FillZero(made->counters_.data(), made->counters_.size(), kCountersName));
  return made;
}

ProductChoice MatrixProducts::RowChoice() {
  ProductChoice rows;
  rows.kind = ProductChoice::Kind::kRows;
  return rows;
}

ProductKey MatrixProducts::KeyOf(const MatMulArgs& args) {
  return {args.outputs,
          args.inputs,
          PaddedRows(args.rows, std::max(args.rows, args.room)),
          args.type,
          args.y_type,
          args.accumulate,
          args.bias != nullptr,
          args.gated != nullptr};
}

absl::Status MatrixProducts::Enqueue(const MatMulArgs& args) {
  COPPICE_CHECK(args.rows > 0 && args.inputs > 0 && args.outputs > 0);
  COPPICE_CHECK(args.y_type == DType::kF32 ||
                args.y_type == (IsDeviceBlocks(args.type) ? args.block_values : args.type));
  COPPICE_CHECK(args.gated == nullptr || (args.outputs % 2 == 0 && !args.accumulate));
  const ProductKey key = KeyOf(args);
  if (const auto only = OnlyChoice(key, exact_); only.has_value()) return Enqueue(args, *only);
  const auto chosen = chosen_.find(key);
  if (chosen != chosen_.end()) {
    const absl::Status enqueued = Enqueue(args, chosen->second);
    if (!absl::IsUnimplemented(enqueued)) return enqueued;
  }
  return EnqueueFirstTaken(args, key);
}

absl::Status MatrixProducts::EnqueueFirstTaken(const MatMulArgs& args, const ProductKey& key) {
  const absl::StatusOr<std::vector<CublasMatMul::Algorithm>> proposed =
      library_->Propose(key, kProposals);
  absl::Status refused = proposed.status();
  if (!refused.ok() && !absl::IsUnimplemented(refused)) return refused;
  for (const CublasMatMul::Algorithm& algorithm :
       proposed.value_or(std::vector<CublasMatMul::Algorithm>())) {
    ProductChoice choice;
    choice.algorithm = algorithm;
    const absl::Status enqueued = Enqueue(args, choice);
    if (enqueued.ok()) chosen_[key] = choice;
    if (!absl::IsUnimplemented(enqueued)) return enqueued;
    refused = enqueued;
  }
  spdlog::warn("cuBLASLt takes no product of {}, which goes by the row product: {}",
               ProductName(key), std::string(refused.message()));
  return Enqueue(args, chosen_[key] = RowChoice());
}

absl::Status MatrixProducts::Enqueue(const MatMulArgs& args, const ProductChoice& choice) {
  const ProductKey key = KeyOf(args);
  if (choice.kind == ProductChoice::Kind::kRows) {
    RowProduct(RowArgs(args), stream_->get());
    COPPICE_RETURN_IF_ERROR(Launched("the row product", key));
    return EnqueueGate(args, key);
  }
  if (choice.kind == ProductChoice::Kind::kBlocks) return EnqueueBlocks(args, key);
  if (choice.kind == ProductChoice::Kind::kSkinny) {
    return EnqueueSkinny(args, choice.splits, key);
  }
  COPPICE_RETURN_IF_ERROR(library_->Enqueue(args, key, choice.algorithm));
  if (args.bias != nullptr) {
    AddBias(args.y, args.y_type, args.bias, args.rows, args.outputs, stream_->get());
    COPPICE_RETURN_IF_ERROR(Launched("the bias", key));
  }
  return EnqueueGate(args, key);
}

absl::Status MatrixProducts::EnqueueGate(const MatMulArgs& args, const ProductKey& key) {
  if (args.gated == nullptr) return absl::OkStatus();
  Activate({Activation::kSilu, /*gated=*/true, args.y, args.gated, args.y_type, args.rows,
            args.outputs / 2},
           stream_->get());
  return Launched("SwiGLU", key);
}

absl::StatusOr<std::vector<ProductChoice>> MatrixProducts::Candidates(const ProductKey& key) {
  if (const auto only = OnlyChoice(key, exact_); only.has_value())
    return std::vector<ProductChoice>{*only};
  const absl::StatusOr<std::vector<CublasMatMul::Algorithm>> proposed =
      library_->Propose(key, kProposals);
  if (!proposed.ok() && !absl::IsUnimplemented(proposed.status())) return proposed.status();
  std::vector<ProductChoice> candidates;
  for (const CublasMatMul::Algorithm& algorithm :
       proposed.value_or(std::vector<CublasMatMul::Algorithm>())) {
    ProductChoice choice;
    choice.algorithm = algorithm;
    candidates.push_back(choice);
  }
  for (const int splits : kSplits) {
    if (splits > 1 && MostSkinnySplits(key.inputs) < splits * kLeastStages) break;
    if (!TakesSkinny(key, splits)) continue;
    ProductChoice choice;
    choice.kind = ProductChoice::Kind::kSkinny;
    choice.splits = splits;
    candidates.push_back(choice);
  }
  return candidates;
}

bool MatrixProducts::Takes(const ProductKey& key, const ProductChoice& choice) {
  if (const auto only = OnlyChoice(key, exact_); only.has_value()) return choice.kind == only->kind;
  if (choice.kind == ProductChoice::Kind::kBlocks) return false;
  if (choice.kind == ProductChoice::Kind::kRows) return true;
  return choice.kind == ProductChoice::Kind::kSkinny ? TakesSkinny(key, choice.splits)
                                                     : library_->Takes(key, choice.algorithm);
}

void MatrixProducts::Use(const ProductTable& table) {
  for (const auto& [key, choice] : table) chosen_[key] = choice;
}

bool MatrixProducts::TakesSkinny(const ProductKey& key, int splits) const {
  return CanSkinny(key.type, key.y_type, key.rows, key.outputs, key.inputs) &&
         (!key.gated || CanSkinnyGate(key.y_type, key.outputs)) && splits > 0 &&
         splits <= MostSkinnySplits(key.inputs) && SkinnyTiles(key.outputs) <= kMostTiles &&
         SkinnyPartialBytes(key.rows, key.outputs, splits) <= workspace_bytes();
}

RowProductArgs MatrixProducts::RowArgs(const MatMulArgs& args) const {
  RowProductArgs product;
  product.w = args.w;
  product.x = args.x;
  product.y = args.y;
  product.bias = args.bias;
  product.type = args.type;
  product.y_type = args.y_type;
  product.rows = static_cast<int32_t>(args.rows);
  product.outputs = args.outputs;
  product.inputs = args.inputs;
  product.accumulate = args.accumulate;
  product.partials = library_->workspace().floats();
  product.partial_bytes = workspace_bytes();
  product.counters = static_cast<uint32_t*>(counters_.data());
  product.counter_count = kMostTiles;
  return product;
}

absl::Status MatrixProducts::EnqueueBlocks(const MatMulArgs& args, const ProductKey& key) {
  BlockProductArgs product{RowArgs(args)};
  product.type = args.block_values;
  product.w_type = args.type;
  product.gated =
      args.gated != nullptr && CanGateBlocks(args.block_values, args.y_type, args.outputs);
  if (product.gated) product.y = args.gated;
  BlockProduct(product, stream_->get());
  COPPICE_RETURN_IF_ERROR(Launched("the block product", key));
  return product.gated ? absl::OkStatus() : EnqueueGate(args, key);
}

absl::Status MatrixProducts::EnqueueSkinny(const MatMulArgs& args, int splits,
                                           const ProductKey& key) {
  SkinnyArgs skinny;
  skinny.w = args.w;
  skinny.x = args.x;
  skinny.y = args.gated == nullptr ? args.y : args.gated;
  skinny.gated = args.gated != nullptr;
  skinny.bias = args.bias;
  skinny.y_type = args.y_type;
  skinny.rows = static_cast<int32_t>(args.rows);
  skinny.outputs = args.outputs;
  skinny.inputs = args.inputs;
  skinny.accumulate = args.accumulate;
  skinny.splits = splits;
  skinny.clustered = clusters_ && splits > 1 && splits <= kMostSkinnyCluster;
  skinny.partials = library_->workspace().floats();
  skinny.counters = static_cast<uint32_t*>(counters_.data());
  GemmSkinny(skinny, stream_->get());
  absl::Status launched = Launched("the skinny kernel", key);
  if (launched.ok() || !skinny.clustered) return launched;
  skinny.clustered = false;
  GemmSkinny(skinny, stream_->get());
  const absl::Status without = Launched("the skinny kernel", key);
  if (!without.ok()) return launched;
  clusters_ = false;
  spdlog::warn("products use no clusters from now on: {}", std::string(launched.message()));
  return absl::OkStatus();
}

}  // namespace coppice::kernels::cuda
