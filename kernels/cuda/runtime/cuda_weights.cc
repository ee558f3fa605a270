#include "kernels/cuda/runtime/cuda_weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/ops/block_matrix.h"
#include "kernels/cuda/ops/block_product.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/runtime/block_packing.h"
#include "kernels/element.h"
#include "kernels/kv_pool_shape.h"
#include "kernels/matrix_source.h"

namespace coppice::kernels::cuda {
namespace {

constexpr size_t kHalfBytes = size_t{8} << 20;

// Where the row of a stack lies.
struct StackedRow {
  const MatrixSource* source = nullptr;
  int64_t row = 0;
};

StackedRow FindRow(absl::Span<const MatrixSource> stacked, int64_t row) {
  const MatrixSource* source = stacked.data();
  while (row >= source->rows) row -= (source++)->rows;
  return {source, row};
}

std::string NameOf(const Weight& matrix) {
  return absl::StrCat("a weight of ", matrix.rows, " x ", matrix.columns, " ",
                      DTypeName(matrix.dtype));
}

absl::Status BeyondF16(absl::string_view what, DType source) {
  return absl::InvalidArgumentError(absl::StrCat("pack: ", what, " from ", DTypeName(source),
                                                 ": a value is beyond ", kLargestF16,
                                                 ", the largest of F16; BF16 and F32 hold it"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaWeight>> DeviceLoader::Begin(
    absl::Span<const MatrixSource> stacked, DType dtype, const std::vector<float>& bias) {
  COPPICE_RETURN_IF_ERROR(CheckStack(stacked, bias.size()));
  auto matrix = std::make_unique<CudaWeight>();
  for (const MatrixSource& source : stacked) matrix->rows += source.rows;
  matrix->columns = stacked[0].columns;
  matrix->dtype = dtype;
  return matrix;
}

absl::Status DeviceLoader::AddBias(const std::vector<float>& bias, absl::string_view what,
                                   CudaWeight* matrix) {
  if (!bias.empty()) {
    COPPICE_ASSIGN_OR_RETURN(matrix->bias, UploadValues(bias, absl::StrCat("the bias of ", what)));
  }
  matrix->bytes = matrix->values.size() + matrix->bias.size();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CudaWeight>> DeviceLoader::Pack(
    absl::Span<const MatrixSource> stacked, DType dtype, const std::vector<float>& bias) {
  COPPICE_ASSIGN_OR_RETURN(auto matrix, Begin(stacked, dtype, bias));
  const std::string what = NameOf(*matrix);
  const size_t row_bytes = matrix->columns * DTypeSize(dtype);
  COPPICE_ASSIGN_OR_RETURN(matrix->values, DeviceBuffer::Allocate(matrix->rows * row_bytes, what));
  std::atomic<bool> fits = true;
  const auto fill = [&](int64_t begin, int64_t end, uint8_t* place) {
    for (int64_t row = begin; row < end; ++row, place += row_bytes) {
      const StackedRow found = FindRow(stacked, row);
      if (!ConvertRow(*found.source, found.row, dtype, place)) fits = false;
    }
  };
  COPPICE_RETURN_IF_ERROR(Upload({matrix->rows, row_bytes, fill}, matrix->values.data(), what));
  if (!fits) return BeyondF16(what, stacked[0].dtype);
  COPPICE_RETURN_IF_ERROR(AddBias(bias, what, matrix.get()));
  return matrix;
}

absl::StatusOr<std::unique_ptr<CudaWeight>> DeviceLoader::PackBlocks(
    absl::Span<const MatrixSource> stacked, DType dtype, DType values,
    const std::vector<float>& bias) {
  COPPICE_ASSIGN_OR_RETURN(auto matrix, Begin(stacked, dtype, bias));
  COPPICE_RETURN_IF_ERROR(CheckBlockScales(stacked, team_));
  matrix->value_dtype = values;
  const std::string what = NameOf(*matrix);
  if (!CanMultiplyBlocks(matrix->columns)) {
    return absl::InvalidArgumentError(
        absl::StrCat("pack: ", what,
                     ": its columns are no multiple of 8, as the CUDA backend "
                     "needs for blocks; BF16 and F16 hold it"));
  }
  const auto panel_bytes =
      static_cast<size_t>(BlockPanelBytes(dtype == DType::kQ4_0, matrix->columns));
  const int64_t panels = BlockPanels(matrix->rows);
  COPPICE_ASSIGN_OR_RETURN(matrix->values, DeviceBuffer::Allocate(panels * panel_bytes, what));
  std::atomic<bool> fits = true;
  const auto fill = [&](int64_t begin, int64_t end, uint8_t* place) {
    for (int64_t panel = begin; panel < end; ++panel, place += panel_bytes) {
      if (!FillBlockPanel(stacked, panel * kBlockPanel, dtype, values, place)) fits = false;
    }
  };
  COPPICE_RETURN_IF_ERROR(Upload({panels, panel_bytes, fill}, matrix->values.data(), what));
  if (!fits) return BeyondF16(what, stacked[0].dtype);
  COPPICE_RETURN_IF_ERROR(AddBias(bias, what, matrix.get()));
  return matrix;
}

absl::StatusOr<std::unique_ptr<CudaWeight>> DeviceLoader::PackGain(const std::vector<float>& gain,
                                                                   const std::vector<float>& bias) {
  if (gain.empty()) return absl::InvalidArgumentError("pack: a gain without values");
  if (!bias.empty() && bias.size() != gain.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pack: a bias of ", bias.size(), " for a gain of ", gain.size()));
  }
  auto weight = std::make_unique<CudaWeight>();
  weight->rows = 1;
  weight->columns = static_cast<int64_t>(gain.size());
  COPPICE_ASSIGN_OR_RETURN(weight->values,
                           UploadValues(gain, absl::StrCat("a gain of ", gain.size())));
  if (!bias.empty()) {
    COPPICE_ASSIGN_OR_RETURN(
        weight->bias, UploadValues(bias, absl::StrCat("the bias of a gain of ", gain.size())));
  }
  weight->bytes = weight->values.size() + weight->bias.size();
  return weight;
}

absl::StatusOr<std::unique_ptr<CudaWeight>> DeviceLoader::PackScatter(
    const std::vector<int32_t>& ids, int64_t places) {
  std::vector<int32_t> value_of(places, -1);
  for (size_t i = 0; i < ids.size(); ++i) value_of[ids[i]] = static_cast<int32_t>(i);
  auto scatter = std::make_unique<CudaWeight>();
  scatter->rows = places;
  scatter->columns = static_cast<int64_t>(ids.size());
  COPPICE_ASSIGN_OR_RETURN(
      scatter->values,
      UploadValues(value_of, absl::StrCat("a scatter of ", ids.size(), " over ", places)));
  scatter->bytes = scatter->values.size();
  return scatter;
}

absl::StatusOr<DeviceBuffer> DeviceLoader::UploadAddresses(
    const std::vector<const void*>& addresses) {
  return UploadValues(addresses, absl::StrCat("a list of ", addresses.size(), " matrices"));
}

absl::StatusOr<std::unique_ptr<CudaKvPool>> DeviceLoader::MakeKvPool(const KvPoolShape& shape) {
  auto pool = std::make_unique<CudaKvPool>();
  pool->shape = shape;
  const std::string what = KvPoolName(shape);
  COPPICE_ASSIGN_OR_RETURN(pool->bytes, KvPoolBytes(shape));
  if (shape.head_dim % kHeadDimUnit != 0 || shape.head_dim > kMaxHeadDim) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": the CUDA kernels take heads of a multiple of ", kHeadDimUnit,
                     ", at most ", kMaxHeadDim));
  }
  if (shape.state_columns % kStateUnit != 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, ", states of ", shape.state_columns,
                                                   ": the CUDA kernels take a multiple of ",
                                                   kStateUnit));
  }
  COPPICE_ASSIGN_OR_RETURN(pool->storage, DeviceBuffer::Allocate(pool->bytes, what));
  COPPICE_RETURN_IF_ERROR(stream_->FillZero(pool->storage.data(), pool->bytes, what));
  COPPICE_RETURN_IF_ERROR(stream_->Synchronize(what));
  return pool;
}

DeviceStates StatesOf(const KvPool& pool) {
  auto* const storage = static_cast<uint8_t*>(static_cast<const CudaKvPool&>(pool).storage.data());
  return {storage + pool.bytes - StateBytes(pool.shape), pool.shape.state_columns};
}

absl::StatusOr<std::unique_ptr<CudaRopeTable>> DeviceLoader::MakeRope(const RopeConfig& config) {
  const HostRopeTable host = BuildRopeTable(config);
  auto table = std::make_unique<CudaRopeTable>();
  table->rotary_dim = host.rotary_dim;
  table->max_positions = host.max_positions;
  const std::string what = absl::StrCat("a rotary table of ", host.max_positions, " positions");
  COPPICE_ASSIGN_OR_RETURN(table->cos, UploadValues(host.cos, what));
  COPPICE_ASSIGN_OR_RETURN(table->sin, UploadValues(host.sin, what));
  return table;
}

template <class T>
absl::StatusOr<DeviceBuffer> DeviceLoader::UploadValues(const std::vector<T>& values,
                                                        absl::string_view what) {
  COPPICE_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                           DeviceBuffer::Allocate(values.size() * sizeof(T), what));
  const auto fill = [&](int64_t begin, int64_t end, uint8_t* place) {
    std::memcpy(place, &values[begin], (end - begin) * sizeof(T));
  };
  const Rows rows = {static_cast<int64_t>(values.size()), sizeof(T), fill};
  COPPICE_RETURN_IF_ERROR(Upload(rows, buffer.data(), what));
  return buffer;
}

absl::Status DeviceLoader::Upload(const Rows& rows, void* device, absl::string_view what) {
  const auto room = std::max<int64_t>(1, static_cast<int64_t>(kHalfBytes / rows.row_bytes));
  for (int64_t begin = 0; begin < rows.count; begin += room) {
    const int64_t count = std::min(room, rows.count - begin);
    COPPICE_ASSIGN_OR_RETURN(Half * half, NextHalf(count * rows.row_bytes, what));
    const int chunks = static_cast<int>(std::min<int64_t>(count, 4 * team_->count()));
    team_->Run(chunks, [&](int chunk) {
      const int64_t first = count * chunk / chunks, last = count * (chunk + 1) / chunks;
      rows.fill(begin + first, begin + last, half->buffer.data() + first * rows.row_bytes);
    });
    COPPICE_RETURN_IF_ERROR(
        stream_->CopyToDevice(static_cast<uint8_t*>(device) + begin * rows.row_bytes,
                              half->buffer.data(), count * rows.row_bytes, what));
    COPPICE_RETURN_IF_ERROR(half->copied->Record(*stream_, what));
  }
  return stream_->Synchronize(what);
}

absl::StatusOr<DeviceLoader::Half*> DeviceLoader::NextHalf(size_t bytes, absl::string_view what) {
  Half& half = halves_[next_half_];
  next_half_ = 1 - next_half_;
  if (half.copied == nullptr) {
    COPPICE_ASSIGN_OR_RETURN(DeviceEvent event, DeviceEvent::Create("the staging of weights"));
    half.copied = std::make_unique<DeviceEvent>(std::move(event));
  } else {
    COPPICE_RETURN_IF_ERROR(half.copied->Wait(what));
  }
  if (half.buffer.size() < bytes) {
    COPPICE_ASSIGN_OR_RETURN(
        half.buffer, PinnedBuffer::Allocate(std::max(bytes, kHalfBytes), "the staging of weights"));
  }
  return &half;
}

}  // namespace coppice::kernels::cuda
