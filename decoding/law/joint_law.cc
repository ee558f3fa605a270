#include "decoding/law/joint_law.h"

#include <algorithm>
#include <limits>

#include "sampling/deterministic_math.h"
#include "sampling/row_kernels.h"
#include "sampling/warp.h"

namespace coppice::decoding {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr double kFloorSlack = 1e-6;  // nats; far above any rounding error

// The warp with only its cuts, for scores that already include bias and temperature.
sampling::WarpParams CutsOf(sampling::WarpParams warp) {
  warp.logit_bias.clear();
  warp.mode = sampling::WarpMode::kRow;
  if (warp.temperature > 0) warp.temperature = 1;
  return warp;
}

std::vector<double> Tempered(const sampling::Distribution& row, const sampling::WarpParams& warp) {
  sampling::WarpParams temperature_alone;
  temperature_alone.temperature = warp.temperature;
  std::vector<double> x = row.log_probs;
  sampling::TemperRow(temperature_alone, absl::MakeSpan(x));
  return x;
}

// Those flat scores of a layer that its joint cut can keep, in canonical order.
struct FlatScores {
  std::vector<double> values;
  std::vector<TokenId> tokens;  // [values]
  std::vector<size_t> end;      // [beams] of each beam's entries

  void Add(TokenId token, double value) {
    tokens.push_back(token);
    values.push_back(value);
  }
};

// Drops entries below `floor`.
void AddWhole(const sampling::WarpedRow& row, double score, int top_k, double floor,
              FlatScores* flat) {
  const absl::Span<const double> x = row.values();
  std::vector<TokenId> tokens;
  if (top_k > 0) {  // an entry of the joint top-k is in the top-k of its row
    tokens = sampling::TopTokens(x, static_cast<size_t>(top_k));
    std::sort(tokens.begin(), tokens.end());
  } else if (floor > kNothing) {
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
double JointLaw::FlatScore(const LawBeam& beam) const {
  const double score =
      beam.score + (beam.multiplicity == 1 ? 0.0 : sampling::Log(beam.multiplicity));
  return warp_.temperature > 0 ? score / warp_.temperature : score;
}

// A score below which min-p or temperature 0 keeps nothing, with slack for rounding. -inf if top-p
// needs all masses.
double JointLaw::Floor(absl::Span<const LawBeam> beams) const {
  const bool one_hot = warp_.temperature <= 0;
  const bool has_top_p = warp_.top_p > 0 && warp_.top_p < 1;
  if (!one_hot && (has_top_p || warp_.min_p <= 0)) return kNothing;
  double largest = kNothing;
  for (const LawBeam& beam : beams) {
    if (beam.warped != nullptr && beam.warped->whole())
      largest = std::max(largest, FlatScore(beam) + beam.warped->log_sum().max);
  }
  return largest + (one_hot ? 0.0 : sampling::Log(std::min(warp_.min_p, 1.0))) - kFloorSlack;
}

LayerLaw JointLaw::Make(absl::Span<const LawBeam> beams) {
  if (!sampling::IsJoint(warp_.mode)) return MakeLayerLaw(beams);
  rows_.assign(beams.size(), sampling::Distribution());
  return sampling::CutsJointly(warp_) ? CutLayer(beams) : WeighRows(beams);
}

// For no cut, or cuts inside each row. The weight of a beam includes the mass that its row keeps.
LayerLaw JointLaw::WeighRows(absl::Span<const LawBeam> beams) {
  std::vector<LawBeam> weighed(beams.begin(), beams.end());
  for (size_t b = 0; b < weighed.size(); ++b) {
    LawBeam& beam = weighed[b];
    beam.score = FlatScore(beam);
    beam.multiplicity = 1;
    if (beam.warped != nullptr) {
      beam.score += beam.warped->log_kept_mass();
      continue;
    }
    const std::vector<double> x = Tempered(*beam.sparse, warp_);
    rows_[b] = sampling::CutRow(x, CutsOf(warp_));
    beam.score += x[rows_[b].tokens[0]] - rows_[b].log_probs[0];
    for (TokenId& token : rows_[b].tokens) token = beam.sparse->tokens[token];
    beam.sparse = &rows_[b];
  }
  return MakeLayerLaw(weighed);
}

LayerLaw JointLaw::CutLayer(absl::Span<const LawBeam> beams) {
  const double floor = Floor(beams);
  FlatScores flat;
  for (const LawBeam& beam : beams) {
    if (beam.warped == nullptr) {
      AddSparse(*beam.sparse, Tempered(*beam.sparse, warp_), FlatScore(beam), &flat);
    } else if (beam.warped->whole()) {
      AddWhole(*beam.warped, FlatScore(beam), warp_.top_k, floor, &flat);
    } else {  // a row without finite logits
      AddSparse(beam.warped->sparse(), beam.warped->sparse().log_probs, FlatScore(beam), &flat);
    }
    flat.end.push_back(flat.values.size());
  }
  const sampling::Distribution kept = sampling::CutRow(flat.values, CutsOf(warp_));
  LayerLaw law;
  size_t next = 0;
  for (size_t b = 0; b < beams.size(); ++b) {
    sampling::Distribution& row = rows_[b];
    for (; next < kept.size() && static_cast<size_t>(kept.tokens[next]) < flat.end[b]; ++next) {
      row.tokens.push_back(flat.tokens[kept.tokens[next]]);
      row.log_probs.push_back(kept.log_probs[next]);
    }
    WeightedRow weighted;
    weighted.hash = beams[b].hash;
    weighted.log_weight = row.size() == 0 ? kNothing : sampling::LogSumExp(row.log_probs);
    for (double& log_prob : row.log_probs) {
      log_prob = std::min(0.0, log_prob - weighted.log_weight);
    }
    if (row.size() > 0) weighted.sparse = &row;
    law.rows.push_back(std::move(weighted));
  }
  return law;
}

}  // namespace coppice::decoding
