// Acceptance at single nodes, as in Table 1 and Figures 1 and 2 of optimal_multi_draft. Takes rows
// of both models along samples from the target. At every node computes the closed forms and optima
// of docs/algorithms.md 7, and measures how often the production verifiers emit one of their
// drafts. Thread-compatible.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "decoding/params.h"
#include "lab/experiments/model_pair.h"
#include "lab/experiments/statistics.h"

namespace coppice::lab {

struct NodeStudyOptions {
  std::vector<std::string> samplings = {"T=0.7"};
  std::vector<int> drafts = {3};     // n
  std::vector<std::string> methods;  // measured; empty: every method that serves multinomial
  int sequences = 64;                // sampled paths, one after another from the prompts
  int nodes = 256;                   // in total, evenly spaced along the paths
  int repeats = 16;                  // seeds of every method at every node
  uint64_t seed = 1;
  decoding::DecodingParams base;  // max_tokens, stop_ids, draft_top_k
};

struct NodeColumn {
  std::string name;
  std::string optimum;  // the column that bounds this one: "alpha*_iid", ...; "" = none
  bool closed_form = false;
  Estimate acceptance;
  Estimate gap;  // optimum - acceptance, over the same nodes
};

struct NodeResult {
  std::string sampling;
  int drafts = 0;  // n
  int nodes = 0;
  std::vector<NodeColumn> columns;
};

// InvalidArgument names the flag that gives an invalid name, sampling parameters or number.
absl::Status CheckNodeStudy(const NodeStudyOptions& options);

// Calls progress with the name of the current measurement.
absl::StatusOr<std::vector<NodeResult>> RunNodeStudy(
    const NodeStudyOptions& options, ModelPair* pair,
    const std::function<void(const std::string&)>& progress);

}  // namespace coppice::lab
