#include "lab/experiments/cell.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/method.h"
#include "lab/experiments/node_rows.h"
#include "lab/experiments/sampling_text.h"
#include "proto/convert.h"
#include "sampling/rng.h"

namespace coppice::lab {
namespace {

// Sums of one cell, grouped by prompt.
struct Sums {
  Sums(int groups, int depth)
      : layers(groups),
        accepted_width(groups),
        width(groups),
        distinct(groups),
        log_likelihood(groups),
        score(groups),
        tokens(groups),
        nodes(groups),
        bytes(groups),
        optimum_iid(groups),
        optimum_wor(groups),
        acceptance(depth, RatioSample(groups)) {}
  RatioSample layers, accepted_width, width, distinct, log_likelihood, score, tokens, nodes, bytes,
      optimum_iid, optimum_wor;
  std::vector<RatioSample> acceptance;  // [depth]
};

class CellRun {
 public:
  CellRun(const Cell& cell, const RunOptions& options, ModelPair* pair)
      : cell_(cell),
        options_(options),
        pair_(pair),
        groups_(std::min(options.sequences, pair->num_prompts())),
        sums_(groups_, cell.draft_depth) {}

  absl::StatusOr<CellResult> Run() {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < options_.sequences; ++i) COPPICE_RETURN_IF_ERROR(RunSequence(i));
    CellResult result = Result();
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
  }

 private:
  bool drafts() const { return cell_.draft_width > 0 && cell_.draft_depth > 0; }

  absl::Status RunSequence(int i) {
    const int prompt = i % groups_;
    decoding::DecodingParams params = cell_.params;
    params.seed = sampling::Finalize(options_.seed + sampling::kRootHash * (i + 1));
    decoding::Hypothesis best;
    {
      COPPICE_ASSIGN_OR_RETURN(auto sequence, pair_->Start(prompt, params));
      COPPICE_RETURN_IF_ERROR(sequence->Round(decoding::DraftForest::Empty(1)).status());
      while (!sequence->decoder().finished()) {
        COPPICE_RETURN_IF_ERROR(RunRound(prompt, sequence.get()));
      }
      const std::vector<decoding::Hypothesis> hypotheses = sequence->decoder().Result();
      if (hypotheses.empty()) return absl::InternalError("no hypothesis");
      best = hypotheses[0];
    }
    return CountHypothesis(i, best);
  }

  absl::Status RunRound(int group, PairSequence* sequence) {
    const decoding::BeamDecoder& decoder = sequence->decoder();
    const int roots = static_cast<int>(decoder.roots().size());
    const int depth = std::min(cell_.draft_depth, decoder.max_useful_depth());
    decoding::DraftForest forest = decoding::DraftForest::Empty(roots);
    if (drafts() && depth > 0) {
      COPPICE_ASSIGN_OR_RETURN(forest, sequence->Draft(cell_.draft_width, depth));
    }
    const int nodes = forest.size();
    const int drafted = forest.depth();
    const double bytes =
        nodes > 0 ? static_cast<double>(proto::ForestToMessage(forest).ByteSizeLong()) : 0;
    COPPICE_ASSIGN_OR_RETURN(const decoding::Verdict verdict, sequence->Round(std::move(forest)));
    const DecodingStats& stats = verdict.stats;
    sums_.layers.Add(group, stats.layers, 1);
    sums_.nodes.Add(group, roots + nodes, 1);
    sums_.bytes.Add(group, bytes, stats.accepted_nodes);
    for (int64_t layer = 0; layer < stats.layers; ++layer) {
      sums_.width.Add(group, verdict.outputs_by_layer[layer], 1);
      sums_.distinct.Add(group, verdict.distinct_by_layer[layer], 1);
    }
    // After a layer that ends the sequence, it is unknown whether the next could have been decided.
    const int64_t tried = std::min<int64_t>(drafted, stats.layers - (decoder.finished() ? 1 : 0));
    for (int64_t layer = 0; layer < tried; ++layer) {
      sums_.acceptance[layer].Add(group, stats.layers > layer + 1, 1);
      sums_.accepted_width.Add(group, stats.accepted_by_layer[layer], 1);
    }
    return absl::OkStatus();
  }

  absl::Status CountHypothesis(int i, const decoding::Hypothesis& best) {
    const int group = i % groups_;
    const double length = static_cast<double>(best.tokens.size());
    COPPICE_ASSIGN_OR_RETURN(const PathRows rows, pair_->RowsAlong(group, best.tokens));
    sums_.log_likelihood.Add(group, PathLogLikelihood(rows, best.tokens) / length, 1);
    sums_.score.Add(group, best.joint_log_probability / length, 1);
    sums_.tokens.Add(group, length, 1);
    if (drafts() && cell_.params.kind == sampling::DecodingKind::kMultinomial)
      CountOptimum(i, rows);
    return absl::OkStatus();
  }

  void CountOptimum(int i, const PathRows& rows) {
    if (!cell_.params.draft_tree.empty()) return;
    const int wanted = options_.optimum_nodes * (i + 1) / options_.sequences -
                       options_.optimum_nodes * i / options_.sequences;
    const int count = std::min(wanted, rows.positions());
    for (int k = 0; k < count; ++k) {
      const int position = rows.positions() * k / count;
      const NodeRows node = NodeRowsAt(rows, position, cell_.params);
      const NodeOptimum optimum = OptimumAt(node, cell_.draft_width);
      sums_.optimum_iid.Add(i % groups_, optimum.iid, 1);
      sums_.optimum_wor.Add(i % groups_, optimum.without_replacement, 1);
    }
  }

  CellResult Result() const {
    CellResult result;
    result.block_efficiency = sums_.layers.Get();
    for (const RatioSample& layer : sums_.acceptance) result.acceptance.push_back(layer.Get());
    result.accepted_width = sums_.accepted_width.Get();
    result.width = sums_.width.Get();
    result.distinct_beams = sums_.distinct.Get();
    result.log_likelihood = sums_.log_likelihood.Get();
    result.score = sums_.score.Get();
    result.tokens = sums_.tokens.Get();
    result.nodes_per_pass = sums_.nodes.Get();
    result.bytes_per_accepted = sums_.bytes.Get();
    result.optimum_iid = sums_.optimum_iid.Get();
    result.optimum_without_replacement = sums_.optimum_wor.Get();
    return result;
  }

  const Cell& cell_;
  const RunOptions& options_;
  ModelPair* pair_;
  int groups_;
  Sums sums_;
};

}  // namespace

std::string CellName(const Cell& cell) {
  std::string name = absl::StrCat(decoding::MethodName(cell.params), " ",
                                  std::string(sampling::DecodingKindName(cell.params.kind)),
                                  " W=", cell.params.beam_width);
  if (cell.draft_width > 0) {
    absl::StrAppend(&name, " W_S=", cell.draft_width, " depth=", cell.draft_depth);
  }
  absl::StrAppend(&name, " ", SamplingText(cell.params.sampling));
  if (!cell.options.empty()) absl::StrAppend(&name, " ", cell.options);
  return name;
}

absl::StatusOr<CellResult> RunCell(const Cell& cell, const RunOptions& options, ModelPair* pair) {
  absl::StatusOr<CellResult> result = CellRun(cell, options, pair).Run();
  if (result.ok()) return result;
  return absl::Status(result.status().code(),
                      absl::StrCat(CellName(cell), ": ", result.status().message()));
}

}  // namespace coppice::lab
