// Matrices of a checkpoint as the backends take them in: checked, and converted row by row. Pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"

namespace coppice::kernels {

// What Backend::Pack promises to refuse: InvalidArgument names what does not fit together. bias:
// its values, 0 = none.
absl::Status CheckStack(absl::Span<const MatrixSource> sources, size_t bias);

// Row `row` of the source as `columns` values of `dtype`. out must be aligned to the values. False
// when a finite value is beyond the range of F16; then that value has become infinite.
bool ConvertRow(const MatrixSource& source, int64_t row, DType dtype, void* out);

}  // namespace coppice::kernels
