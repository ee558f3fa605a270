// Rotary positions as config.json describes them: rope_theta, and rope_scaling or rope_parameters
// with the scalings of Transformers (modeling_rope_utils): default, linear, llama3, yarn, longrope,
// dynamic.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/json_file.h"
#include "model/model_config.h"

namespace coppice::model {

// Positions of all layers. Rotates partial_rotary_factor of head_dim; absent: all. May raise
// config->max_positions (yarn: to the original length times the factor).
absl::Status ReadRope(const JsonFile& json, ModelConfig* config);

// The positions of one kind of layer. theta_field: its base frequency, default_theta if absent.
// kind: its name in rope_parameters, if that has an object for each kind. scaled: whether
// rope_scaling is for these layers. default_part: the part of a head that rotates if the config does
// not say.
struct RopeFields {
  std::string theta_field = "rope_theta";
  double default_theta = 10000;
  std::string kind;
  bool scaled = true;
  double default_part = 1;
};
absl::StatusOr<kernels::RopeConfig> ReadRopeOf(const JsonFile& json, const RopeFields& fields,
                                               ModelConfig* config);

}  // namespace coppice::model
