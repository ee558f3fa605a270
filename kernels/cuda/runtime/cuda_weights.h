// Weights and KV pools in device memory, and how they get there: through two pinned halves, one
// filled by the threads of the host while the other is copied. Matrices are row-major as in the
// checkpoint, [rows, columns], or in the panels of ops/block_matrix.h. Owned by CudaBackend.
// Thread-compatible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/thread_team.h"
#include "kernels/backend.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/rope_table.h"

namespace coppice::kernels::cuda {

// A matrix or a gain (f32, one row) with its bias, or a scatter: for each place the value that goes
// there, -1 = none (int32, [rows]).
class CudaWeight : public Weight {
 public:
  // Of a matrix in blocks: the type of its values where they are used, and of the activations.
  DType value_dtype = DType::kBF16;
  DeviceBuffer values;
  DeviceBuffer bias;  // f32, as many as there are outputs or gains, or nothing
};

class CudaKvPool : public KvPool {
 public:
  DeviceBuffer storage;  // zeroed at first
};
// The states of a pool of the backend: behind K and V.
DeviceStates StatesOf(const KvPool& pool);

class CudaRopeTable : public RopeTable {
 public:
  DeviceBuffer cos, sin;  // [max_positions, rotary_dim / 2] f32
};

class DeviceLoader {
 public:
  // Both must outlive the loader.
  DeviceLoader(ThreadTeam* team, DeviceStream* stream) : team_(team), stream_(stream) {}

  // As in Backend. All return when the copies are done.
  absl::StatusOr<std::unique_ptr<CudaWeight>> Pack(absl::Span<const MatrixSource> stacked,
                                                   DType dtype, const std::vector<float>& bias);
  // As Backend::Pack of Q8_0 or Q4_0. values: F16 or BF16.
  absl::StatusOr<std::unique_ptr<CudaWeight>> PackBlocks(absl::Span<const MatrixSource> stacked,
                                                         DType dtype, DType values,
                                                         const std::vector<float>& bias);
  absl::StatusOr<std::unique_ptr<CudaWeight>> PackGain(const std::vector<float>& gain,
                                                       const std::vector<float>& bias);
  absl::StatusOr<std::unique_ptr<CudaWeight>> PackScatter(const std::vector<int32_t>& ids,
                                                          int64_t places);
  // A list of addresses in device memory.
  absl::StatusOr<DeviceBuffer> UploadAddresses(const std::vector<const void*>& addresses);
  absl::StatusOr<std::unique_ptr<CudaKvPool>> MakeKvPool(const KvPoolShape& shape);
  absl::StatusOr<std::unique_ptr<CudaRopeTable>> MakeRope(const RopeConfig& config);

 private:
  struct Half {
    PinnedBuffer buffer;
    std::unique_ptr<DeviceEvent> copied;  // reached once the copy from the half is done
  };
  // fill(begin, end, place) writes these rows, of row_bytes each; several threads call it.
  struct Rows {
    int64_t count = 0;
    size_t row_bytes = 0;
    std::function<void(int64_t begin, int64_t end, uint8_t* place)> fill;
  };

  // rows, columns and type of what the stack becomes. Errors are those of the stack.
  absl::StatusOr<std::unique_ptr<CudaWeight>> Begin(absl::Span<const MatrixSource> stacked,
                                                    DType dtype, const std::vector<float>& bias);
  absl::Status AddBias(const std::vector<float>& bias, absl::string_view what, CudaWeight* matrix);
  absl::Status Upload(const Rows& rows, void* device, absl::string_view what);
  template <class T>
  absl::StatusOr<DeviceBuffer> UploadValues(const std::vector<T>& values, absl::string_view what);
  // The next half, free and with room for this many bytes.
  absl::StatusOr<Half*> NextHalf(size_t bytes, absl::string_view what);

  ThreadTeam* const team_;
  DeviceStream* const stream_;
  std::array<Half, 2> halves_;
  int next_half_ = 0;
};

}  // namespace coppice::kernels::cuda
