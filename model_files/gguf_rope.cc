#include "model_files/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace coppice::model_files {
namespace {

using Json = nlohmann::json;

constexpr char kDivisors[] = "rope_freqs.weight";
constexpr char kLong[] = "rope_factors_long.weight";
constexpr char kShort[] = "rope_factors_short.weight";

// Reads what scales the positions of one file.
class Scaling {
 public:
  Scaling(const GgufFile& file, const std::string& name, const GgufSizes& sizes, double theta)
      : file_(file), name_(name), sizes_(sizes), theta_(theta) {}

  // Null: not scaled. Sets *original to the context that the model was first trained with, if
  // config.json has it beside rope_scaling.
  absl::StatusOr<Json> Read(int64_t* original) {
    // Without a type it is linear. Old files have another key for the factor. 0 is no factor.
    COPPICE_ASSIGN_OR_RETURN(const std::string type,
                             file_.TextOr(Key("rope.scaling.type"), "linear"));
    COPPICE_ASSIGN_OR_RETURN(const double old,
                             file_.NumberOr(Key("rope.scale_linear"), 0, kMostFactor, 0));
    COPPICE_ASSIGN_OR_RETURN(factor_,
                             file_.NumberOr(Key("rope.scaling.factor"), 0, kMostFactor, old));
    if (type != "none" && type != "linear" && type != "yarn" && type != "longrope") {
      return file_.KeyError(
          Key("rope.scaling.type"),
          absl::StrCat(ShownName(type), " is not served (none, linear, yarn, longrope are)"));
    }
    if (Has(kLong) || Has(kShort)) return LongRope(original);
    COPPICE_RETURN_IF_ERROR(CheckAttentionFactor(1));
    const bool scaled = type != "none" && factor_ != 0 && factor_ != 1;
    if (Has(kDivisors)) {
      if (!scaled) return Llama3();
      return file_.Error(absl::StrCat("tensor ", kDivisors, ": not served beside a ", type,
                                      " scale of ", factor_));
    }
    if (type == "longrope") {
      return file_.KeyError(Key("rope.scaling.type"),
                            absl::StrCat("longrope, but tensor ", kLong, " is missing"));
    }
    if (!scaled) return Json();
    if (type == "yarn") return Yarn();
    return Json{{"rope_type", "linear"}, {"factor", factor_}};
  }

 private:
  static constexpr double kMostFactor = 1e6;

  std::string Key(const char* field) const { return absl::StrCat(name_, ".", field); }
  bool Has(const char* tensor) const { return file_.FindTensor(tensor) != nullptr; }

  absl::Status CheckAttentionFactor(double expected) const {
    const std::string key = Key("rope.scaling.attn_factor");
    COPPICE_ASSIGN_OR_RETURN(const double found, file_.NumberOr(key, 0, kMostFactor, expected));
    if (std::abs(found - expected) <= 1e-3 * expected) return absl::OkStatus();
    return file_.KeyError(key, absl::StrCat(found, " is not served, expected ", expected));
  }

  absl::StatusOr<int64_t> Original() const {
    return file_.Int(Key("rope.scaling.original_context_length"), 1, 1 << 24);
  }

  absl::StatusOr<Json> Yarn() const {
    COPPICE_ASSIGN_OR_RETURN(const int64_t original, Original());
    Json scaling = {
        {"rope_type", "yarn"}, {"factor", factor_}, {"original_max_position_embeddings", original}};
    for (const char* field : {"beta_fast", "beta_slow"}) {
      const std::string key = Key("rope.scaling.yarn_") + field;
      if (!file_.Has(key)) continue;
      COPPICE_ASSIGN_OR_RETURN(const double value, file_.Number(key, 1e-3, 1e6));
      scaling[field] = value;
    }
    return scaling;
  }

  // A factor for each frequency: one list for texts up to the original context, one beyond.
  absl::StatusOr<Json> LongRope(int64_t* original) const {
    const int64_t count = sizes_.rope_dims / 2;
    COPPICE_ASSIGN_OR_RETURN(*original, Original());
    COPPICE_ASSIGN_OR_RETURN(const std::vector<float> longer, file_.Vector(kLong, count));
    COPPICE_ASSIGN_OR_RETURN(const std::vector<float> shorter, file_.Vector(kShort, count));
    const double longest = static_cast<double>(sizes_.context) / static_cast<double>(*original);
    COPPICE_RETURN_IF_ERROR(CheckAttentionFactor(
        longest <= 1
            ? 1
            : std::sqrt(1 + std::log(longest) / std::log(static_cast<double>(*original)))));
    return Json{{"type", "longrope"}, {"long_factor", longer}, {"short_factor", shorter}};
  }

  // A file has the divisor of each frequency instead of the four numbers that they come from. Llama
  // 3.1 to 3.3 use low and high factors of 1 and 4 and a context of 8192. If these give the
  // divisors, they are the numbers; else it is refused.
  absl::StatusOr<Json> Llama3() const {
    constexpr double kLow = 1, kHigh = 4, kContext = 8192, kTurn = 2 * 3.14159265358979323846;
    const int64_t count = sizes_.rope_dims / 2;
    COPPICE_ASSIGN_OR_RETURN(const std::vector<float> divisors, file_.Vector(kDivisors, count));
    const double factor = *std::max_element(divisors.begin(), divisors.end());
    for (int64_t i = 0; i < count; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(sizes_.rope_dims);
      const double turns = kContext / kTurn * std::pow(theta_, exponent);  // in the context
      const double smooth = std::clamp((turns - kLow) / (kHigh - kLow), 0.0, 1.0);
      const double expected = (1 - smooth) / factor + smooth;
      if (!(std::abs(1 / divisors[i] - expected) <= 1e-3 * std::abs(expected))) {
        return file_.Error(absl::StrCat("tensor ", kDivisors, ": [", i, "] is ", divisors[i],
                                        ", expected ", 1 / expected,
                                        ", the divisor of Llama 3 (factors 1 and 4, context "
                                        "8192)"));
      }
    }
    return Json{{"rope_type", "llama3"},
                {"factor", factor},
                {"low_freq_factor", kLow},
                {"high_freq_factor", kHigh},
                {"original_max_position_embeddings", static_cast<int64_t>(kContext)}};
  }

  const GgufFile& file_;
  const std::string& name_;
  const GgufSizes& sizes_;
  const double theta_;
  double factor_ = 0;
};

}  // namespace

absl::Status AddGgufRope(const GgufFile& file, const std::string& name, const GgufSizes& sizes,
                         Json* config) {
  COPPICE_ASSIGN_OR_RETURN(const double theta,
                           file.NumberOr(absl::StrCat(name, ".rope.freq_base"), 1, 1e12, 10000.0));
  (*config)["rope_theta"] = theta;
  int64_t original = 0;
  COPPICE_ASSIGN_OR_RETURN(const Json scaling, Scaling(file, name, sizes, theta).Read(&original));
  if (!scaling.is_null()) (*config)["rope_scaling"] = scaling;
  if (original > 0) (*config)["original_max_position_embeddings"] = original;
  return absl::OkStatus();
}

}  // namespace coppice::model_files
