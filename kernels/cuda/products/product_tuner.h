// Finds the fastest algorithm of every matrix product of a pass, by measuring: for each shape and
// bucket of rows what cuBLASLt proposes, and the skinny kernel with several splits. Results are
// kept in a file, and what the file has is not measured again. Runs while a node starts, never in a
// step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/products/pass_products.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

struct TuningRequest {
  std::vector<PassProduct> products;  // products of CudaWeights; their tensors are on this device
  std::string cache;                  // as BackendOptions::tuning_cache
  std::function<void()> moves_on;     // called between measurements; may be empty
  // Joins the ranks that tune together, or nullptr. Rank 0 tunes, and the others take its results;
  // they measure only what it does not have, because their shards have other sizes.
  comm::Communicator* communicator = nullptr;
};

// Overwrites the tensors of the products. Afterwards *products uses the results. Returns the cost
// of a forward pass by its rows. A file that cannot be read or written is a warning; an error is
// one of the device, or names a product that it cannot compute. Aborted: rank 0 had an error.
// Collective.
absl::StatusOr<std::vector<RowCost>> TuneProducts(const TuningRequest& request,
                                                  const DeviceFacts& device, DeviceStream* stream,
                                                  MatrixProducts* products);

}  // namespace coppice::kernels::cuda
