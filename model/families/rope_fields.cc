#include "model/families/rope_fields.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/rope_table.h"

namespace coppice::model {
namespace {

using kernels::RopeConfig;

// A frequency table before its scaling, and what the scalings need of the model.
struct PlainRope {
  int dim = 0;  // dimensions that rotate
  double theta = 0;
  int positions = 0;  // max_position_embeddings
};

// If a wavelength is above original / low_freq_factor, its frequency is divided by factor. If it is
// below original / high_freq_factor, it is kept. Between the two, the results are blended.
absl::Status ScaleLlama3(const JsonFile& json, const JsonFile& scaling, RopeConfig* rope) {
  COPPICE_ASSIGN_OR_RETURN(const double factor, scaling.PositiveNumber("factor"));
  COPPICE_ASSIGN_OR_RETURN(const double low, scaling.PositiveNumber("low_freq_factor"));
  COPPICE_ASSIGN_OR_RETURN(const double high, scaling.PositiveNumber("high_freq_factor"));
  const std::string field = "original_max_position_embeddings";
  COPPICE_ASSIGN_OR_RETURN(const double original,
                           (json.Has(field) ? json : scaling).PositiveNumber(field));
  if (!(high > low)) {
    return scaling.Error("high_freq_factor",
                         absl::StrCat(high, ", expected more than low_freq_factor (", low, ")"));
  }
  for (double& frequency : rope->frequencies) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength < original / high) continue;
    const double smooth =
        wavelength > original / low ? 0.0 : (original / wavelength - low) / (high - low);
    frequency = (1.0 - smooth) * frequency / factor + smooth * frequency;
  }
  return absl::OkStatus();
}

// The length of the texts before the scaling. The field of the model counts before that of the
// scaling.
absl::StatusOr<int64_t> OriginalPositions(const JsonFile& json, const JsonFile& scaling,
                                          const PlainRope& plain) {
  const std::string field = "original_max_position_embeddings";
  return (json.Has(field) ? json : scaling).IntOr(field, 1, 1 << 24, plain.positions);
}

double YarnScale(double factor, double m) {
  return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

// YaRN (Peng et al. 2023): frequencies that turn more than beta_fast times within the original
// length are kept, those that turn less than beta_slow times are divided by factor, with a ramp
// between.
absl::Status ScaleYarn(const JsonFile& json, const JsonFile& scaling, const PlainRope& plain,
                       RopeConfig* rope, ModelConfig* config) {
  COPPICE_ASSIGN_OR_RETURN(const int64_t original, OriginalPositions(json, scaling, plain));
  COPPICE_ASSIGN_OR_RETURN(
      const double factor,
      scaling.PositiveNumberOr("factor", static_cast<double>(plain.positions) / original));
  COPPICE_ASSIGN_OR_RETURN(const double fast, scaling.PositiveNumberOr("beta_fast", 32));
  COPPICE_ASSIGN_OR_RETURN(const double slow, scaling.PositiveNumberOr("beta_slow", 1));
  COPPICE_ASSIGN_OR_RETURN(const double m, scaling.PositiveNumberOr("mscale", 0));
  COPPICE_ASSIGN_OR_RETURN(const double all, scaling.PositiveNumberOr("mscale_all_dim", 0));
  COPPICE_ASSIGN_OR_RETURN(const bool truncate, scaling.BoolOr("truncate", true));
  const double scale =
      m > 0 && all > 0 ? YarnScale(factor, m) / YarnScale(factor, all) : YarnScale(factor, 1);
  COPPICE_ASSIGN_OR_RETURN(rope->scale, scaling.PositiveNumberOr("attention_factor", scale));
  const auto dimension = [&](double turns) {
    return plain.dim * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(plain.theta));
  };
  double low = dimension(fast), high = dimension(slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, plain.dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < rope->frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = rope->frequencies[i];
    frequency = frequency / factor * ramp + frequency * (1 - ramp);
  }
  const double longest = std::min(original * factor, static_cast<double>(1 << 24));
  config->max_positions = std::max(config->max_positions, static_cast<int>(longest));
  return absl::OkStatus();
}

// LongRoPE (Ding et al. 2024): a divisor for each frequency. A model whose context is longer than
// the original one is served with the divisors for long texts, also for short ones, because K of a
// token must not change while its text grows.
absl::Status ScaleLongRope(const JsonFile& json, const JsonFile& scaling, const PlainRope& plain,
                           RopeConfig* rope) {
  COPPICE_ASSIGN_OR_RETURN(const int64_t original, OriginalPositions(json, scaling, plain));
  const bool is_long = plain.positions > original;
  const std::string field = is_long ? "long_factor" : "short_factor";
  COPPICE_ASSIGN_OR_RETURN(const std::vector<double> divisors, scaling.PositiveNumbers(field));
  if (divisors.size() != rope->frequencies.size()) {
    return scaling.Error(field, absl::StrCat(divisors.size(), " numbers, expected ",
                                             rope->frequencies.size(), ", one a rotated pair"));
  }
  for (size_t i = 0; i < divisors.size(); ++i) rope->frequencies[i] /= divisors[i];
  COPPICE_ASSIGN_OR_RETURN(
      const double factor,
      scaling.PositiveNumberOr("factor", static_cast<double>(plain.positions) / original));
  const double scale =
      factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
  COPPICE_ASSIGN_OR_RETURN(rope->scale, scaling.PositiveNumberOr("attention_factor", scale));
  return absl::OkStatus();
}

absl::Status ScaleRope(const JsonFile& json, const JsonFile& scaling, const PlainRope& plain,
                       RopeConfig* rope, ModelConfig* config) {
  const std::string field = scaling.Has("rope_type") || !scaling.Has("type") ? "rope_type" : "type";
  COPPICE_ASSIGN_OR_RETURN(const std::string type, scaling.String(field));
  // dynamic: within max_position_embeddings nothing is scaled, and no text is longer.
  if (type == "default" || type == "dynamic") return absl::OkStatus();
  if (type == "llama3") return ScaleLlama3(json, scaling, rope);
  if (type == "yarn") return ScaleYarn(json, scaling, plain, rope, config);
  if (type == "longrope" || type == "su") return ScaleLongRope(json, scaling, plain, rope);
  if (type == "linear") {
    COPPICE_ASSIGN_OR_RETURN(const double factor, scaling.PositiveNumber("factor"));
    for (double& frequency : rope->frequencies) frequency /= factor;
    return absl::OkStatus();
  }
  return scaling.Error(
      field, absl::StrCat(type, ", expected default, linear, dynamic, llama3, yarn or longrope"));
}

// parameters: the object that newer folders have beside the old fields, if there is one.
absl::StatusOr<int> RotatedDimensions(const JsonFile& outer,
                                      const std::optional<JsonFile>& parameters,
                                      double default_part, const ModelConfig& config) {
  std::string field = outer.Has("rotary_pct") ? "rotary_pct" : "partial_rotary_factor";
  const bool inner = parameters.has_value() && parameters->Has("partial_rotary_factor");
  if (inner) field = "partial_rotary_factor";
  const JsonFile& json = inner ? *parameters : outer;
  COPPICE_ASSIGN_OR_RETURN(const double part, json.PositiveNumberOr(field, default_part));
  const int dim = static_cast<int>(config.head_dim * part);
  if (part > 1 || dim == 0) {
    return json.Error(field, absl::StrCat(part, ", expected a part of head_dim (", config.head_dim,
                                          "), at most 1"));
  }
  if (dim % 2 == 0) return dim;
  return json.Error(part == 1 ? "head_dim" : field,
                    absl::StrCat(part == 1 ? "" : absl::StrCat(part, ", so that "), dim,
                                 part == 1 ? "" : " dimensions rotate",
                                 ", expected an even number (rotary pairs)"));
}

}  // namespace

absl::StatusOr<RopeConfig> ReadRopeOf(const JsonFile& json, const RopeFields& fields,
                                      ModelConfig* config) {
  PlainRope plain;
  plain.positions = config->max_positions;
  COPPICE_ASSIGN_OR_RETURN(plain.theta,
                           json.PositiveNumberOr(fields.theta_field, fields.default_theta));
  std::optional<JsonFile> scaling;
  if (json.Has("rope_scaling") && fields.scaled) {
    COPPICE_ASSIGN_OR_RETURN(scaling, json.Object("rope_scaling"));
  } else if (json.Has("rope_parameters")) {
    // Newer folders call the object so, put the base into it, and may have one for each kind.
    COPPICE_ASSIGN_OR_RETURN(scaling, json.Object("rope_parameters"));
    if (!fields.kind.empty() && scaling->Has(fields.kind)) {
      COPPICE_ASSIGN_OR_RETURN(scaling, scaling->Object(fields.kind));
    }
  }
  if (scaling.has_value()) {
    COPPICE_ASSIGN_OR_RETURN(plain.theta, scaling->PositiveNumberOr("rope_theta", plain.theta));
  }
  COPPICE_ASSIGN_OR_RETURN(plain.dim,
                           RotatedDimensions(json, scaling, fields.default_part, *config));
  RopeConfig rope;
  rope.frequencies = kernels::PlainFrequencies(plain.dim, plain.theta);
  if (scaling.has_value()) COPPICE_RETURN_IF_ERROR(ScaleRope(json, *scaling, plain, &rope, config));
  return rope;
}

absl::Status ReadRope(const JsonFile& json, ModelConfig* config) {
  COPPICE_ASSIGN_OR_RETURN(RopeConfig rope, ReadRopeOf(json, RopeFields(), config));
  config->ropes.push_back(std::move(rope));
  return absl::OkStatus();
}

}  // namespace coppice::model
