// Matrices of a checkpoint as the backends take them in: checked, cut, and converted row by row.
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/thread_team.h"
#include "kernels/backend.h"

namespace coppice::kernels {

// What Backend::Pack promises to refuse: InvalidArgument names what does not fit together. bias:
// its values, 0 = none.
absl::Status CheckStack(absl::Span<const MatrixSource> sources, size_t bias);

// The same for Backend::PackEach: a type for each source; for its own sources alone if it is a block
// format that nothing is quantised to.
absl::Status CheckTypes(absl::Span<const MatrixSource> sources, absl::Span<const DType> dtypes);

// InvalidArgument names the first block of a source whose scale is not finite.
absl::Status CheckBlockScales(absl::Span<const MatrixSource> sources, ThreadTeam* team);

// Rows [begin, end), columns [begin, end). InvalidArgument when the columns do not begin and end
// with a block of the source's format.
MatrixSource RowsOf(const MatrixSource& source, int64_t begin, int64_t end);
absl::StatusOr<MatrixSource> ColumnsOf(const MatrixSource& source, int64_t begin, int64_t end);

const void* RowData(const MatrixSource& source, int64_t row);

// Row `row` of the source as `columns` values of `dtype`: F32, BF16 or F16. out must be aligned to
// the values. False when a finite value is beyond the range of F16; then that value has become
// infinite.
bool ConvertRow(const MatrixSource& source, int64_t row, DType dtype, void* out);

}  // namespace coppice::kernels
