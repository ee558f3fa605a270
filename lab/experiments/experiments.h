// The named experiments of the laboratory. Each varies the same parameters as a table or figure of
// the papers, on any pair. Values.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lab/experiments/grid.h"

namespace coppice::lab {

struct Experiment {
  absl::string_view name;
  absl::string_view what;
  std::vector<Grid> grids;  // runs of sequences; empty: the study is of single nodes
  std::vector<std::string> methods, samplings;  // for a study of single nodes
  std::vector<int> drafts;
  bool single_nodes() const { return grids.empty(); }
};

absl::Span<const Experiment> Experiments();
// InvalidArgument lists the names.
absl::StatusOr<Experiment> FindExperiment(absl::string_view name);

}  // namespace coppice::lab
