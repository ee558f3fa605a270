#include "lab/golden/golden_case.h"

#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "sampling/deterministic_math.h"

namespace coppice::golden {

void CaseCheck::Fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void CaseCheck::Near(absl::string_view what, double got, double want, double tolerance) {
  if (!(std::abs(got - want) <= tolerance)) {
    char text[80];
    std::snprintf(text, sizeof text, "got %.17g, want %.17g", got, want);
    Fail(absl::StrCat(what, ": ", text));
  }
}

void CaseCheck::Equal(absl::string_view what, const Json& got, const Json& want) {
  if (got != want) Fail(absl::StrCat(what, ": got ", got.dump(), ", want ", want.dump()));
}

void CaseCheck::True(absl::string_view what, bool holds) {
  if (!holds) Fail(std::string(what));
}

void CaseCheck::NearAll(absl::string_view what, absl::Span<const double> got, const Json& vec) {
  const std::vector<double> want = Vec(vec);
  if (got.size() != want.size()) {
    Fail(absl::StrCat(what, ": got ", got.size(), " entries, want ", want.size()));
    return;
  }
  for (size_t i = 0; i < want.size(); ++i) Near(absl::StrCat(what, "[", i, "]"), got[i], want[i]);
}

void CaseCheck::SameDistribution(absl::string_view what, const test::ExactDistribution& got,
                                 const Json& distribution) {
  test::ExactDistribution want;
  for (const Json& entry : distribution) {
    const Json& out = entry.at("out");
    std::vector<uint64_t> outcome;
    if (out.is_array()) {
      outcome = out.get<std::vector<uint64_t>>();
    } else {
      outcome = {out.get<uint64_t>()};
    }
    want[outcome] += entry.at("f64").get<double>();
  }
  Near(absl::StrCat(what, ": largest difference of the distributions"),
       test::LargestDifference(got, want), 0.0);
}

std::vector<double> Vec(const Json& vec) {
  return (vec.is_object() ? vec.at("f64") : vec).get<std::vector<double>>();
}

double Fraction(const std::string& text) {
  const size_t slash = text.find('/');
  const double top = std::stod(text.substr(0, slash));
  return slash == std::string::npos ? top : top / std::stod(text.substr(slash + 1));
}

uint64_t Hex(const std::string& text) { return std::stoull(text, nullptr, 16); }

std::vector<TokenId> Path(const Json& path) { return path.get<std::vector<TokenId>>(); }

test::HashLm ReadHashLm(const Json& inputs) {
  test::HashLm lm;
  lm.vocab_size = inputs.at("V").get<int>();
  lm.salt = inputs.at("salt").get<uint64_t>();
  lm.power = inputs.at("power").get<int>();
  lm.noise = inputs.value("noise", uint64_t{0});
  return lm;
}

sampling::SamplingParams ReadSampling(const Json& inputs) {
  sampling::SamplingParams sampling;
  sampling.temperature = inputs.value("temperature", 1.0);
  sampling.top_k = inputs.value("top_k", 0);
  sampling.top_p = inputs.value("top_p", 0.0);
  sampling.min_p = inputs.value("min_p", 0.0);
  if (inputs.contains("logit_bias")) {
    for (const Json& bias : inputs.at("logit_bias")) {
      sampling.logit_bias.emplace_back(bias.at(0).get<TokenId>(), bias.at(1).get<double>());
    }
  }
  sampling.mode = inputs.value("mode", "ROW") == "ROW_RAW" ? sampling::SamplingScope::kRowRaw
                                                           : sampling::SamplingScope::kRow;
  return sampling;
}

sampling::Distribution RowOf(absl::Span<const double> probabilities) {
  sampling::Distribution row;
  for (size_t v = 0; v < probabilities.size(); ++v) {
    if (probabilities[v] <= 0) continue;
    row.tokens.push_back(static_cast<TokenId>(v));
    row.log_probs.push_back(sampling::Log(probabilities[v]));
  }
  return row;
}

void CheckBeams(absl::string_view what, const decoding::PathTree& paths,
                absl::Span<const decoding::LayerOutput> got, const Json& want, CaseCheck* check) {
  check->Equal(absl::StrCat(what, ": number of beams"), got.size(), want.size());
  for (size_t i = 0; i < want.size() && i < got.size(); ++i) {
    const std::string name = absl::StrCat(what, "[", i, "]");
    check->Equal(absl::StrCat(name, ".path"), paths.Tokens(got[i].path), want[i].at("path"));
    check->Near(absl::StrCat(name, ".logscore"), got[i].log_score,
                want[i].at("logscore").get<double>());
  }
}

}  // namespace coppice::golden
