// One case of a golden file (tests/golden/README.md): readers for its inputs, and comparisons that
// record the first mismatch. Used by every file of this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "decoding/beam_decoder.h"
#include "decoding/params.h"
#include "lab/exact/beam_distribution.h"
#include "lab/exact/hash_lm.h"
#include "nlohmann/json.hpp"

namespace coppice::golden {

using Json = nlohmann::json;

inline constexpr double kTolerance = 1e-12;  // absolute, unless a file's schema says otherwise

class CaseCheck {
 public:
  void Near(absl::string_view what, double got, double want, double tolerance = kTolerance);
  void Equal(absl::string_view what, const Json& got, const Json& want);
  void True(absl::string_view what, bool holds);
  // `vec` of 12.1.
  void NearAll(absl::string_view what, absl::Span<const double> got, const Json& vec);
  // `distribution` of 12.1 whose outcomes are numbers or lists of numbers.
  void SameDistribution(absl::string_view what, const test::ExactDistribution& got,
                        const Json& distribution);

  const std::string& failure() const { return failure_; }  // empty: everything agreed

 private:
  void Fail(std::string what);
  std::string failure_;
};

using CaseRunner = void (*)(const Json& inputs, const Json& expected, CaseCheck* check);

// Readers of the schema's types.
std::vector<double> Vec(const Json& vec);  // {"f64": [...]} or a plain list
double Fraction(const std::string& text);  // "a/b" or "a"
uint64_t Hex(const std::string& text);
std::vector<TokenId> Path(const Json& path);
test::HashLm ReadHashLm(const Json& inputs);
sampling::SamplingParams ReadSampling(const Json& inputs);
// Positive entries of a list of probabilities as a row.
sampling::Distribution RowOf(absl::Span<const double> probabilities);
// `beamlist` of 12.1 against a layer's outputs.
void CheckBeams(absl::string_view what, const decoding::PathTree& paths,
                absl::Span<const decoding::LayerOutput> got, const Json& want, CaseCheck* check);

}  // namespace coppice::golden
