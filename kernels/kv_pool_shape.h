// What every backend asks of the shape of a KV pool. Pure functions.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace coppice::kernels {

// "a KV pool of 12 blocks, ...", for errors.
std::string KvPoolName(const KvPoolShape& shape);
// Memory of K or V of a token of one head: elements, and with kI8 the scale.
size_t KvVectorBytes(int head_dim, DType dtype);
// Memory of the states of all slots, which follow K and V.
size_t StateBytes(const KvPoolShape& shape);
// Memory of the pool, with states. InvalidArgument names a shape that makes no sense;
// ResourceExhausted: more slots than can be addressed.
absl::StatusOr<size_t> KvPoolBytes(const KvPoolShape& shape);

}  // namespace coppice::kernels
