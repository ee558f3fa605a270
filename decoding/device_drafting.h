// Drafts whose levels a device may choose (plan/forest_plan.h): which those are, and the rule that
// gives the same forest as the drafter, up to ties. Called by the draft node. Pure functions.
#pragma once

#include <optional>

#include "decoding/forest.h"
#include "decoding/params.h"
#include "plan/forest_plan.h"

namespace coppice::decoding {

// The forest without its levels. nullopt: the method sends proposals or ranks by another rule, or
// the draft row is cut by top-p or min-p.
std::optional<ForestPlan::Forest> DeviceForest(const DecodingParams& params,
                                               const DraftState& state, int width);
// What the verifier receives.
DraftForest ForestOf(const GrownForest& grown, int num_roots);

}  // namespace coppice::decoding
