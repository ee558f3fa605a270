#include "decoding/joint/joint_distribution.h"

#include <algorithm>

#include "sampling/deterministic_math.h"
#include "sampling/logits_processing.h"
#include "sampling/row_kernels.h"

namespace coppice::decoding {
namespace {

constexpr double kFloorSlack = 1e-6;  // nats; far above any rounding error

// The sampling parameters with only their cuts, for scores that already include bias and
// temperature.
sampling::SamplingParams CutsOf(sampling::SamplingParams sampling) {
  sampling.logit_bias.clear();
  sampling.mode = sampling::SamplingScope::kRow;
  if (sampling.temperature > 0) sampling.temperature = 1;
  return sampling;
}

std::vector<double> Tempered(const sampling::Distribution& row,
                             const sampling::SamplingParams& sampling) {
  sampling::SamplingParams temperature_alone;
  temperature_alone.temperature = sampling.temperature;
  std::vector<double> x = row.log_probs;
  sampling::TemperRow(temperature_alone, absl::MakeSpan(x));
  return x;
}

// Those flat scores of a layer that its joint cut can keep, in canonical order.
struct FlatScores {
  std::vector<double> values;
  std::vector<TokenId> tokens;  // [values]
  std::vector<size_t> end;      // [beams] end of each beam's entries

  void Add(TokenId token, double value) {
    tokens.push_back(token);
    values.push_back(value);
  }
};

// Drops entries below `floor`.
void AddWhole(const sampling::ProcessedRow& row, double score, int top_k, double floor,
              FlatScores* flat) {
  const absl::Span<const double> x = row.values();
  std::vector<TokenId> tokens;
  if (top_k > 0) {  // an entry of the joint top-k is in the top-k of its row
    tokens = sampling::TopTokens(x, static_cast<size_t>(top_k));
    std::sort(tokens.begin(), tokens.end());
  } else if (floor > sampling::kLogZero) {
    std::vector<double> maxima;
    sampling::BlockMaxima(x, &maxima);
    sampling::CollectAtLeast(x, maxima, floor - score, &tokens);
  } else {
    for (size_t v = 0; v < x.size(); ++v) flat->Add(static_cast<TokenId>(v), score + x[v]);
  }
  for (TokenId token : tokens) flat->Add(token, score + x[token]);
}

void AddSparse(const sampling::Distribution& row, absl::Span<const double> x, double score,
               FlatScores* flat) {
  for (size_t i = 0; i < row.size(); ++i) flat->Add(row.tokens[i], score + x[i]);
}

}  // namespace

// (ls + log m) / T.
double JointDistribution::FlatScore(const WeightedBeam& beam) const {
  const double score =
      beam.score + (beam.multiplicity == 1 ? 0.0 : sampling::Log(beam.multiplicity));
  return sampling_.temperature > 0 ? score / sampling_.temperature : score;
}

// A score below which min-p or temperature 0 keeps nothing, with slack for rounding. -inf if top-p
// needs all masses.
double JointDistribution::Floor(absl::Span<const WeightedBeam> beams) const {
  const bool one_hot = sampling_.temperature <= 0;
  const bool has_top_p = sampling_.top_p > 0 && sampling_.top_p < 1;
  if (!one_hot && (has_top_p || sampling_.min_p <= 0)) return sampling::kLogZero;
  double largest = sampling::kLogZero;
  for (const WeightedBeam& beam : beams) {
    if (beam.processed != nullptr && beam.processed->whole())
      largest = std::max(largest, FlatScore(beam) + beam.processed->log_sum().max);
  }
  return largest + (one_hot ? 0.0 : sampling::Log(std::min(sampling_.min_p, 1.0))) - kFloorSlack;
}

LayerDistribution JointDistribution::Make(absl::Span<const WeightedBeam> beams) {
  if (!sampling::IsJoint(sampling_.mode)) return MakeLayerDistribution(beams);
  rows_.assign(beams.size(), sampling::Distribution());
  return sampling::CutsJointly(sampling_) ? CutLayer(beams) : WeighRows(beams);
}

// For no cut, or cuts inside each row. The weight of a beam includes the mass that its row keeps.
LayerDistribution JointDistribution::WeighRows(absl::Span<const WeightedBeam> beams) {
  std::vector<WeightedBeam> weighed(beams.begin(), beams.end());
  for (size_t b = 0; b < weighed.size(); ++b) {
    WeightedBeam& beam = weighed[b];
    beam.score = FlatScore(beam);
    beam.multiplicity = 1;
    if (beam.processed != nullptr) {
      beam.score += beam.processed->log_kept_mass();
      continue;
    }
    const std::vector<double> x = Tempered(*beam.sparse, sampling_);
    rows_[b] = sampling::CutRow(x, CutsOf(sampling_));
    beam.score += x[rows_[b].tokens[0]] - rows_[b].log_probs[0];
    for (TokenId& token : rows_[b].tokens) token = beam.sparse->tokens[token];
    beam.sparse = &rows_[b];
  }
  return MakeLayerDistribution(weighed);
}

LayerDistribution JointDistribution::CutLayer(absl::Span<const WeightedBeam> beams) {
  const double floor = Floor(beams);
  FlatScores flat;
  for (const WeightedBeam& beam : beams) {
    if (beam.processed == nullptr) {
      AddSparse(*beam.sparse, Tempered(*beam.sparse, sampling_), FlatScore(beam), &flat);
    } else if (beam.processed->whole()) {
      AddWhole(*beam.processed, FlatScore(beam), sampling_.top_k, floor, &flat);
    } else {  // a row without finite logits
      AddSparse(beam.processed->sparse(), beam.processed->sparse().log_probs, FlatScore(beam),
                &flat);
    }
    flat.end.push_back(flat.values.size());
  }
  const sampling::Distribution kept = sampling::CutRow(flat.values, CutsOf(sampling_));
  LayerDistribution distribution;
  size_t next = 0;
  for (size_t b = 0; b < beams.size(); ++b) {
    sampling::Distribution& row = rows_[b];
    for (; next < kept.size() && static_cast<size_t>(kept.tokens[next]) < flat.end[b]; ++next) {
      row.tokens.push_back(flat.tokens[kept.tokens[next]]);
      row.log_probs.push_back(kept.log_probs[next]);
    }
    WeightedRow weighted;
    weighted.hash = beams[b].hash;
    weighted.log_weight = row.size() == 0 ? sampling::kLogZero : sampling::LogSumExp(row.log_probs);
    for (double& log_prob : row.log_probs) {
      log_prob = std::min(0.0, log_prob - weighted.log_weight);
    }
    if (row.size() > 0) weighted.sparse = &row;
    distribution.rows.push_back(std::move(weighted));
  }
  return distribution;
}

}  // namespace coppice::decoding
