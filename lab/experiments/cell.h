// One cell of the laboratory: one method with one draft shape, run over many sequences, and the
// results. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "decoding/params.h"
#include "lab/experiments/model_pair.h"
#include "lab/experiments/statistics.h"

namespace coppice::lab {

struct Cell {
  decoding::DecodingParams params;  // method of the table; plain: the target alone
  int draft_width = 0;              // W_S; 0 with "none"
  int draft_depth = 0;              // gamma
  std::string options;              // further options of the method, as written: "draft_beams=8"
};

// "dsbd beam_sampling W=4 W_S=8 gamma=4 T=0.7"
std::string CellName(const Cell& cell);

struct RunOptions {
  int sequences = 64;  // sequence i takes prompt i modulo the number of prompts, seed by i
  uint64_t seed = 1;
  int optimum_nodes = 200;  // nodes at which the optimum is computed; 0 = none
};

// The first round of every sequence (the end of its prefill) has no draft and is not counted.
struct CellResult {
  Estimate block_efficiency;
  // acceptance[l], of drafted layer l (0-based): of the passes that reached the layer, the share in
  // which the drafts covered it, so that the next layer could be decided too. At width 1 this means
  // that the drafted token was emitted.
  std::vector<Estimate> acceptance;
  Estimate accepted_width;  // distinct drafted nodes that became beams, per drafted layer reached
  Estimate width;           // outputs of a layer, copies counted
  Estimate distinct_beams;  // distinct paths among these
  Estimate log_likelihood;  // of the chosen hypothesis: raw target, nats per token
  Estimate score;           // the same by the method's own score, processed
  Estimate tokens;          // of the chosen hypothesis
  Estimate nodes_per_pass;  // rows of the target: roots and drafted nodes
  Estimate bytes_per_accepted;  // serialised forest over distinct drafted nodes that became beams
  // Optimum of docs/algorithms.md 7 with the same number of drafts at single nodes of the chosen
  // hypotheses. NaN unless decoding is multinomial.
  Estimate optimum_iid, optimum_without_replacement;
  double seconds = 0;
};

// Errors of the pair or of the parameters, with the cell's name.
absl::StatusOr<CellResult> RunCell(const Cell& cell, const RunOptions& options, ModelPair* pair);

}  // namespace coppice::lab
