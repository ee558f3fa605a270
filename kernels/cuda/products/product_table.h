// Which algorithm a matrix product takes, as measured, and the file that keeps it. Plain data: no
// header of CUDA. Thread-compatible.
//
// The file is text: a line with the version, lines that say what it was measured on, a line for
// each product, and a last line with their number. It holds the products of every model that was
// served with this device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"

namespace coppice::kernels::cuda {

// y[rows, outputs] = x[rows, inputs] w[outputs, inputs]^T, with a bias, added to y, or with SwiGLU.
struct ProductKey {
  int64_t outputs = 0, inputs = 0, rows = 0;  // rows: padded
  DType type = DType::kF32;                   // type of w; of x too, unless w is in blocks
  DType y_type = DType::kF32;
  bool accumulate = false, bias = false;
  bool gated = false;  // never with accumulate

  auto operator<=>(const ProductKey&) const = default;
};
std::string ProductName(const ProductKey& key);  // "32 rows by 4096 x 4096 BF16 to F32, added"

struct ProductChoice {
  // kLibrary: cuBLASLt. kSkinny: gemm_skinny.h. kRows: row_product.h, in exact mode, or where
  // cuBLASLt takes none. kBlocks: block_product.h, for weights in blocks, which have no other.
  enum class Kind { kLibrary, kSkinny, kRows, kBlocks };
  Kind kind = Kind::kLibrary;
  std::array<uint64_t, 8> algorithm = {};  // kLibrary: a cublasLtMatmulAlgo_t
  int splits = 0;                          // kSkinny: number of splits
  double seconds = 0;                      // measured time of one product; 0 = not measured

  bool operator==(const ProductChoice&) const = default;
};

// The place for which times and algorithms are valid.
struct TuningPlace {
  std::string device;  // name of the device
  int multiprocessors = 0;
  uint64_t library = 0;  // version of cuBLASLt
  size_t workspace = 0;  // bytes
  bool exact = false;    // times of exact mode, in a file of their own

  bool operator==(const TuningPlace&) const = default;
};

using ProductTable = std::map<ProductKey, ProductChoice>;

// The whole text of a file.
std::string ProductTableText(const TuningPlace& place, const ProductTable& table);
// InvalidArgument names the line that is wrong. FailedPrecondition: of another version or place.
absl::StatusOr<ProductTable> ParseProductTable(const TuningPlace& place, absl::string_view text);

// In the folder of a tuning cache: one file for each place.
std::string TuningFilePath(const std::string& folder, const TuningPlace& place);
// NotFound: there is no such file. Errors name it.
absl::StatusOr<ProductTable> ReadTuningFile(const std::string& path, const TuningPlace& place);
// Replaces the file at once, so that nobody reads half of it; makes the folder. Errors name the
// file.
absl::Status WriteTuningFile(const std::string& path, const TuningPlace& place,
                             const ProductTable& table);

// "auto": $XDG_CACHE_HOME/coppice, else $HOME/.cache/coppice, else "". Anything else is a folder.
std::string TuningFolder(const std::string& flag);

}  // namespace coppice::kernels::cuda
