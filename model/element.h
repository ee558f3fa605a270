// One stored element of a checkpoint as f32. For the small vectors (norm gains, biases); matrices
// are converted by Backend::Pack.
#pragma once

#include "kernels/backend.h"

namespace coppice::model {

// `data` need not be aligned. Exact for every dtype.
float ElementToFloat(const char* data, kernels::DType dtype);

}  // namespace coppice::model
