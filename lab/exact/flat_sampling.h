// The readings of the sampling parameters (docs/algorithms.md 1) over every entry of a layer,
// written directly from the specification: the reference for decoding/joint and sampling. Slow
// and plain. Used by tests/decoding and lab/exact/layered_distribution.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "decoding/params.h"

namespace coppice::test {

// The beams of one layer; equal paths merged, multiplicity counted.
struct FlatLayer {
  std::vector<double> log_score;               // [beams] ls, nats
  std::vector<int> multiplicity;               // [beams]
  std::vector<std::vector<double>> log_probs;  // [beams][vocab] raw, -inf = probability 0
};

inline void AddBias(const sampling::SamplingParams& sampling, std::vector<double>* row) {
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token >= 0 && token < static_cast<int>(row->size())) (*row)[token] += bias;
  }
}

// One row through steps 1 to 5 of docs/algorithms.md 1; probabilities, 0 = cut. The bias is in the
// row already.
inline std::vector<double> ProcessedByDefinition(std::vector<double> row,
                                                 const sampling::SamplingParams& sampling) {
  std::vector<double> out(row.size(), 0.0);
  std::vector<size_t> kept(row.size());  // by logit descending, id ascending
  std::iota(kept.begin(), kept.end(), 0);
  std::stable_sort(kept.begin(), kept.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
  const size_t first = kept[0];
  if (sampling.temperature == 0 || std::isinf(row[first])) {
    out[first] = 1;
    return out;
  }
  std::vector<double> ratio;  // [vocab] ratio to the likeliest token
  for (double value : row) ratio.push_back(std::exp((value - row[first]) / sampling.temperature));
  if (sampling.top_k > 0 && kept.size() > static_cast<size_t>(sampling.top_k))
    kept.resize(sampling.top_k);
  double total = 0;
  for (size_t token : kept) total += ratio[token];
  if (sampling.top_p > 0 && sampling.top_p < 1) {
    double before = 0;
    size_t count = 0;
    while (count < kept.size() && before / total <= sampling.top_p) before += ratio[kept[count++]];
    kept.resize(count);
  }
  total = 0;
  for (size_t token : kept) {
    if (ratio[token] >= sampling.min_p) total += out[token] = ratio[token];
  }
  for (double& mass : out) mass /= total;
  return out;
}

// Every row processed on its own (ROW and ROW_RAW).
inline std::vector<std::vector<double>> ProcessedRows(const FlatLayer& layer,
                                                      const sampling::SamplingParams& sampling) {
  std::vector<std::vector<double>> rows;
  for (std::vector<double> row : layer.log_probs) {
    AddBias(sampling, &row);
    rows.push_back(ProcessedByDefinition(row, sampling));
  }
  return rows;
}

// p_beam of docs/algorithms.md 1 and 3.3 over the flat space: the weight of beam b is
// m_b exp(ls(b)).
inline std::vector<double> WeighRows(const FlatLayer& layer,
                                     const std::vector<std::vector<double>>& rows) {
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (double score : layer.log_score) largest = std::max(largest, score);
  const auto weight = [&](size_t b) {
    return layer.multiplicity[b] * std::exp(layer.log_score[b] - largest);
  };
  for (size_t b = 0; b < rows.size(); ++b) total += weight(b);
  std::vector<double> out;
  for (size_t b = 0; b < rows.size(); ++b) {
    for (double p : rows[b]) out.push_back(weight(b) / total * p);
  }
  return out;
}

// p_beam over the flat space beam * vocab + token; probabilities, 0 = cut. The bias is added to the
// rows first.
inline std::vector<double> FlatSampling(const FlatLayer& layer,
                                        const sampling::SamplingParams& sampling) {
  std::vector<double> flat;  // ls + log m + log p
  std::vector<bool> kept;    // by the row's own sampling parameters
  for (size_t b = 0; b < layer.log_probs.size(); ++b) {
    std::vector<double> row = layer.log_probs[b];
    AddBias(sampling, &row);
    for (double p : ProcessedByDefinition(row, sampling)) kept.push_back(p > 0);
    for (double value : row)
      flat.push_back(layer.log_score[b] + std::log(layer.multiplicity[b]) + value);
  }
  if (flat.empty()) return {};
  if (sampling.mode == sampling::SamplingScope::kJoint || sampling.temperature == 0)
    return ProcessedByDefinition(flat, sampling);
  std::vector<double> out(flat.size(), 0.0);
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (double value : flat) largest = std::max(largest, value);
  for (size_t i = 0; i < flat.size(); ++i) {
    if (kept[i]) out[i] = std::exp((flat[i] - largest) / sampling.temperature);
    total += out[i];
  }
  for (double& mass : out) mass /= total;
  return out;
}

}  // namespace coppice::test
