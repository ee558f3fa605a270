// Combines lists of methods, widths, drafts and sampling parameters into the cells that the method
// table admits. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lab/experiments/cell.h"

namespace coppice::lab {

struct Grid {
  // "gumbel_coupling", "none", "all" (every row of the table and none), or a name with options:
  // "dsbd:width_threshold=0.9:min_width=2".
  std::vector<std::string> methods = {"all"};
  std::vector<sampling::DecodingKind> decodings;  // empty: all that a method serves
  std::vector<int> widths = {1, 4};               // W of the decodings that have beams
  std::vector<int> draft_widths = {0};            // W_S; 0: 4 at W = 1, else 2 W
  std::vector<int> depths = {4};
  std::vector<std::string> samplings = {"T=1"};
};

struct SkippedCell {
  std::string name, reason;
};
struct GridCells {
  std::vector<Cell> cells;
  std::vector<SkippedCell> skipped;  // combinations that the table or the parameters refuse
};

// `base` has the parameters that all cells share: max_tokens, stop_ids, draft_top_k.
// InvalidArgument names an invalid name, option, sampling parameters or number, or says that no
// cell is left.
absl::StatusOr<GridCells> MakeCells(const Grid& grid, const decoding::DecodingParams& base);

}  // namespace coppice::lab
