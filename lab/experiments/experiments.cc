#include "lab/experiments/experiments.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace coppice::lab {
namespace {

// top-k 20, top-p 0.9: Appendix D of mjsd; top-k 10, top-p 0.8: Appendix B of dsbd.
constexpr char kMjsdSampling[] = "T=1/top_k=20/top_p=0.9";
constexpr char kDsbdSampling[] = "T=1/top_k=10/top_p=0.8";

std::vector<std::string> Variants(absl::string_view method, absl::string_view option,
                                  std::vector<absl::string_view> values) {
  std::vector<std::string> out;
  for (absl::string_view value : values) {
    out.push_back(absl::StrCat(method, ":", option, "=", value));
  }
  return out;
}

std::vector<std::string> Join(std::vector<std::vector<std::string>> lists) {
  std::vector<std::string> out;
  for (const auto& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

// Plain beam sampling at W = 1..4, and DSBD with t, W_min and W_S as section 4.2 of the paper
// varies them. W only affects the layer after the drafted ones.
std::vector<Grid> DsbdGrids(std::vector<int> draft_widths,
                            std::vector<absl::string_view> thresholds,
                            std::vector<absl::string_view> minimums) {
  Grid plain, dynamic;
  plain.methods = {"none"};
  dynamic.methods.clear();
  for (absl::string_view threshold : thresholds) {
    for (absl::string_view minimum : minimums) {
      dynamic.methods.push_back(
          absl::StrCat("dsbd:width_threshold=", threshold, ":min_width=", minimum));
    }
  }
  plain.widths = {1, 2, 3, 4};
  dynamic.widths = {4};
  dynamic.draft_widths = std::move(draft_widths);
  plain.decodings = dynamic.decodings = {sampling::DecodingKind::kBeamSampling};
  plain.samplings = dynamic.samplings = {kDsbdSampling};
  return {plain, dynamic};
}

std::vector<Experiment> MakeExperiments() {
  const std::vector<std::string> kNodeMethods = {"recursive_rejection", "k_seq",
                                                 "recursive_rejection_wor", "greedy_multi_draft"};
  std::vector<Experiment> out;
  out.push_back({"grid", "the lists of the flags, every method by default", {Grid{}}});
  out.push_back(
      {"nodes", "acceptance at single nodes with the lists of the flags", {}, {}, {"T=1"}, {4}});

  Grid methods;
  methods.methods = {"all", "dsbd:width_threshold=0.7", "dsbd:width_threshold=0.9"};
  methods.widths = {4};
  out.push_back(
      {"methods", "every row of the table at W = 1 or 4, gamma = 4: docs/decoding.md", {methods}});
  Grid pareto = methods;
  pareto.widths = {1, 2, 4};
  out.push_back({"pareto", "every row at W = 1, 2, 4: quality against block efficiency", {pareto}});
  Grid depth;
  depth.methods = {"rejection", "block_verification", "recursive_rejection_wor",
                   "greedy_multi_draft", "gumbel_coupling"};
  depth.decodings = {sampling::DecodingKind::kMultinomial};
  depth.depths = {1, 2, 3, 4, 6, 8};
  out.push_back({"depth", "block efficiency against the depth of the draft", {depth}});

  out.push_back(
      {"optimal_table1",
       "optimal_multi_draft Table 1: RRS, K-SEQ and greedy against alpha*, T = 0.7, n = 3",
       {},
       {},
       {"T=0.7"},
       {3}});
  out.push_back(
      {"optimal_figure1",
       "optimal_multi_draft Figure 1: acceptance against temperature",
       {},
       kNodeMethods,
       {"T=0.1", "T=0.25", "T=0.4", "T=0.55", "T=0.7", "T=0.85", "T=1", "T=1.25", "T=1.5", "T=2"},
       {3}});
  out.push_back({"optimal_figure2",
                 "optimal_multi_draft Figure 2: acceptance against the number of drafts",
                 {},
                 kNodeMethods,
                 {"T=0.7"},
                 {1, 2, 3, 4, 6, 8}});
  Grid trees;
  trees.methods =
      Join({Variants("recursive_rejection_wor", "draft_tree", {"2-2-2-2", "4-4-4", "eagle"}),
            Variants("greedy_multi_draft", "draft_tree", {"2-2-2-2", "4-4-4", "eagle"}),
            Variants("spechub", "draft_tree", {"2-2-2-2"})});
  trees.samplings = {"T=0.1", "T=0.6", "T=1"};
  out.push_back({"optimal_table2",
                 "optimal_multi_draft Tables 2 and 3: draft trees, acceptance and length",
                 {trees}});

  Grid accepted;
  accepted.methods = {"rejection", "mjsd:draft_beams=8:mjsd_threshold=0.1"};
  accepted.decodings = {sampling::DecodingKind::kMultinomial};
  accepted.samplings = {kMjsdSampling};
  out.push_back({"mjsd_figure3",
                 "mjsd Figure 3: accepted tokens, rejection and MJSD, gamma = 4",
                 {accepted}});
  Grid beams = accepted;
  beams.methods = Variants("mjsd", "draft_beams", {"2", "4", "6", "8"});
  out.push_back({"mjsd_table3", "mjsd Table 3: beams of the draft", {beams}});
  Grid threshold = accepted;
  threshold.methods = Join({{"none"},
                            Variants("mjsd:draft_beams=8", "mjsd_threshold",
                                     {"0", "0.1", "0.3", "0.5", "0.7", "0.9", "1"})});
  out.push_back({"mjsd_figure4", "mjsd Figure 4: the acceptance threshold", {threshold}});

  out.push_back({"dsbd_figure7", "dsbd Figure 7: average width, quality and block efficiency",
                 DsbdGrids({2, 4, 6}, {"0.7", "0.9"}, {"1", "2", "3"})});
  out.push_back({"dsbd_figure8", "dsbd Figure 8: the threshold t",
                 DsbdGrids({6}, {"0.5", "0.7", "0.8", "0.9", "0.95"}, {"1"})});
  out.push_back({"dsbd_figure9", "dsbd Figure 9: the draft width W_S",
                 DsbdGrids({2, 3, 4, 5, 6}, {"0.7", "0.9"}, {"1"})});
  return out;
}

}  // namespace

absl::Span<const Experiment> Experiments() {
  static const auto* experiments = new std::vector<Experiment>(MakeExperiments());
  return *experiments;
}

absl::StatusOr<Experiment> FindExperiment(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const Experiment& experiment : Experiments()) {
    if (experiment.name == name) return experiment;
    names.push_back(experiment.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--experiment: unknown '", name, "', expected ", absl::StrJoin(names, ", ")));
}

}  // namespace coppice::lab
