// The joint readings of the warp (docs/algorithms.md 1, JOINT and ROWCUT) over every entry of a
// layer, written directly from the specification: the reference for decoding/law/joint_law. Used by
// tests/decoding.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "decoding/params.h"
#include "decoding/rows/warp.h"

namespace coppice::test {

// The beams of one layer; equal paths merged, multiplicity counted.
struct FlatLayer {
  std::vector<double> log_score;               // [beams] ls, nats
  std::vector<int> multiplicity;               // [beams]
  std::vector<std::vector<double>> log_probs;  // [beams][vocab] unwarped, -inf = probability 0
};

inline void AddBias(const decoding::WarpParams& warp, std::vector<double>* row) {
  for (const auto& [token, bias] : warp.logit_bias) {
    if (token >= 0 && token < static_cast<int>(row->size())) (*row)[token] += bias;
  }
}

// p_beam over the flat space beam * vocab + token; probabilities, 0 = cut. The bias is added to the
// rows first.
inline std::vector<double> FlatWarp(const FlatLayer& layer, const decoding::WarpParams& warp) {
  decoding::WarpParams no_bias = warp;
  no_bias.logit_bias.clear();
  std::vector<double> flat;  // ls + log m + log p
  std::vector<bool> kept;    // by the row's own warp
  for (size_t b = 0; b < layer.log_probs.size(); ++b) {
    std::vector<double> row = layer.log_probs[b];
    AddBias(warp, &row);
    std::vector<bool> in_row(row.size(), false);
    for (TokenId token : decoding::WarpRow(absl::Span<const double>(row), no_bias).tokens)
      in_row[token] = true;
    kept.insert(kept.end(), in_row.begin(), in_row.end());
    for (double value : row)
      flat.push_back(layer.log_score[b] + std::log(layer.multiplicity[b]) + value);
  }
  std::vector<double> out(flat.size(), 0.0);
  if (warp.mode == decoding::WarpMode::kJoint || warp.temperature == 0) {
    const decoding::Distribution row = decoding::WarpRow(absl::Span<const double>(flat), no_bias);
    for (size_t i = 0; i < row.size(); ++i) out[row.tokens[i]] = std::exp(row.log_probs[i]);
    return out;
  }
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (double value : flat) largest = std::max(largest, value);
  for (size_t i = 0; i < flat.size(); ++i) {
    if (kept[i]) out[i] = std::exp((flat[i] - largest) / warp.temperature);
    total += out[i];
  }
  for (double& mass : out) mass /= total;
  return out;
}

}  // namespace coppice::test
