// The sampling parameters that a checkpoint recommends, in its generation_config.json. They apply
// where a request gives none. Immutable after Load.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/api/parameter_fields.h"
#include "decoding/parameter.h"

namespace coppice::coordinator {

class SamplingDefaults {
 public:
  // Those of the folder of a model: temperature, top_k, top_p, min_p and repetition_penalty. There
  // are none if there is no such file, and none with a neutral value. Errors name the file, the
  // field and the range.
  static absl::StatusOr<SamplingDefaults> Load(const std::string& dir);

  // Sets the parameters that the request does not give.
  void Apply(const GivenParameters& given, decoding::DecodingParams* params) const;

  bool empty() const { return values_.empty(); }
  nlohmann::ordered_json ToJson() const;  // {"temperature": 0.6}
  std::string Text() const;               // "temperature 0.6, top_k 20"

 private:
  std::vector<std::pair<const decoding::ParameterRow*, decoding::ParameterValue>> values_;
};

}  // namespace coppice::coordinator
