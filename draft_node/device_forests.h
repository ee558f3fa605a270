// Draft forests whose levels the device chooses: all forward passes of several forests at once,
// with one wait. If a backend cannot do this, or a forest is of another kind, ForestBuilder chooses
// the levels on the host. Called by DraftService and by the laboratory.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "draft_node/forest_builder.h"
#include "model/model_runner.h"

namespace coppice::draft_node {

// Starts all levels of the forests, each of which must grow on the device; together they must have
// at most max_rows rows at any level. After an error nothing runs, and *builders must be given up.
absl::Status SubmitForests(absl::Span<ForestBuilder* const> builders, model::ModelRunner* runner);
// Waits, and gives each builder its forest. results[i] belongs to builders[i]; an error there
// concerns that forest alone.
absl::StatusOr<std::vector<absl::Status>> WaitForForests(absl::Span<ForestBuilder* const> builders,
                                                         model::ModelRunner* runner);

}  // namespace coppice::draft_node
