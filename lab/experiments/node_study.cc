#include "lab/experiments/node_study.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/method.h"
#include "decoding/tree/k_seq.h"
#include "lab/experiments/node_rows.h"
#include "lab/experiments/row_model.h"
#include "lab/experiments/sampling_text.h"
#include "lab/theory/acceptance.h"
#include "sampling/rng.h"

namespace coppice::lab {
namespace {

constexpr char kIid[] = "alpha*_iid";
constexpr char kWithoutReplacement[] = "alpha*_wor";
constexpr char kGreedy[] = "alpha_greedy";

// The column that bounds a method: the optimum for the distribution of its children.
std::string OptimumOf(absl::string_view method) {
  const decoding::MethodRow* row = decoding::FindMethod(method);
  if (row == nullptr || row->node_rule == nullptr) return "";
  switch (row->child_sampling) {
    case decoding::ChildSampling::kIid:
      return kIid;
    case decoding::ChildSampling::kWithoutReplacement:
      return kWithoutReplacement;
    case decoding::ChildSampling::kGreedy:
    case decoding::ChildSampling::kSpecHub:
      return kGreedy;
    case decoding::ChildSampling::kMostLikely:
      break;  // deterministic drafts have no such optimum
  }
  return "";
}

struct ClosedForm {
  const char* name;
  const char* optimum;
  double (*value)(const NodeRows& node, int n);
};
constexpr ClosedForm kClosedForms[] = {
    {kIid, "", [](const NodeRows& node, int n) { return OptimumAt(node, n).iid; }},
    {kWithoutReplacement, "",
     [](const NodeRows& node, int n) { return OptimumAt(node, n).without_replacement; }},
    {kGreedy, "",
     [](const NodeRows& node, int n) { return lab::AcceptanceGreedy(node.p, node.q, n); }},
    {"overlap", "", [](const NodeRows& node, int) { return lab::Overlap(node.p, node.q); }},
    {"RRS", kIid,
     [](const NodeRows& node, int n) { return lab::AcceptanceRrsIid(node.p, node.q, n); }},
    {"K-SEQ", kIid,
     [](const NodeRows& node, int n) {
       return decoding::AcceptanceKSeq(node.p, node.q, n).acceptance;
     }},
};

// Nodes of one setting: recorded rows, and the prompt that each comes from.
struct Nodes {
  PathRows rows;
  std::vector<int> group;
  int groups = 0;
};

using Values = std::vector<double>;  // [nodes]

class NodeStudy {
 public:
  NodeStudy(const NodeStudyOptions& options, ModelPair* pair) : options_(options), pair_(pair) {}

  // Samples paths from the target under the sampling parameters and keeps rows evenly spaced along
  // them.
  absl::StatusOr<Nodes> Collect(const sampling::SamplingParams& sampling) {
    Nodes nodes;
    nodes.rows.vocab_size = pair_->vocab_size();
    nodes.groups = std::min(options_.sequences, pair_->num_prompts());
    for (int i = 0; i < options_.sequences; ++i) {
      decoding::DecodingParams params = options_.base;
      params.plain = true;
      params.sampling = sampling;
      params.seed = sampling::Finalize(options_.seed + sampling::kRootHash * (i + 1));
      const int prompt = i % nodes.groups;
      COPPICE_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, Sample(prompt, params));
      COPPICE_ASSIGN_OR_RETURN(const PathRows path, pair_->RowsAlong(prompt, tokens));
      const int wanted =
          options_.nodes * (i + 1) / options_.sequences - options_.nodes * i / options_.sequences;
      const int count = std::min(wanted, path.positions());
      for (int k = 0; k < count; ++k) {
        const int position = path.positions() * k / count;
        const auto p = path.TargetRow(position), q = path.DraftRow(position);
        nodes.rows.target.insert(nodes.rows.target.end(), p.begin(), p.end());
        nodes.rows.draft.insert(nodes.rows.draft.end(), q.begin(), q.end());
        nodes.group.push_back(prompt);
      }
    }
    return nodes;
  }

  Values Calculate(const ClosedForm& form, const Nodes& nodes,
                   const sampling::SamplingParams& sampling, int n) {
    decoding::DecodingParams params = options_.base;
    params.sampling = sampling;
    Values values;
    for (int i = 0; i < nodes.rows.positions(); ++i) {
      values.push_back(form.value(NodeRowsAt(nodes.rows, i, params), n));
    }
    return values;
  }

  // How often the method's verifier emits a draft at each node. Runs a sequence that has the node's
  // rows everywhere, with one drafted layer in its second round.
  absl::StatusOr<Values> Measure(const std::string& method, const Nodes& nodes,
                                 const sampling::SamplingParams& sampling, int n) {
    decoding::DecodingParams params = options_.base;
    params.method = decoding::FindMethod(method);
    params.sampling = sampling;
    params.stop_ids.clear();
    params.max_tokens = 3;
    params.draft_width = n;
    params.draft_depth = 1;
    const auto tables = MakeTablePair(MakeRecordedRows(nodes.rows));
    Values values;
    for (int i = 0; i < nodes.rows.positions(); ++i) {
      int accepted = 0;
      for (int repeat = 0; repeat < options_.repeats; ++repeat) {
        params.seed = sampling::Finalize(options_.seed +
                                         sampling::kRootHash * (1 + i * options_.repeats + repeat));
        COPPICE_ASSIGN_OR_RETURN(auto sequence, tables->Start(i, params));
        COPPICE_RETURN_IF_ERROR(sequence->Round(decoding::DraftForest::Empty(1)).status());
        COPPICE_ASSIGN_OR_RETURN(decoding::DraftForest forest, sequence->Draft(n, 1));
        COPPICE_ASSIGN_OR_RETURN(const decoding::Verdict verdict,
                                 sequence->Round(std::move(forest)));
        accepted += verdict.stats.layers > 1;
      }
      values.push_back(static_cast<double>(accepted) / options_.repeats);
    }
    return values;
  }

 private:
  absl::StatusOr<std::vector<TokenId>> Sample(int prompt, const decoding::DecodingParams& params) {
    COPPICE_ASSIGN_OR_RETURN(auto sequence, pair_->Start(prompt, params));
    while (!sequence->decoder().finished()) {
      COPPICE_RETURN_IF_ERROR(sequence->Round(decoding::DraftForest::Empty(1)).status());
    }
    return sequence->decoder().Result().at(0).tokens;
  }

  const NodeStudyOptions& options_;
  ModelPair* pair_;
};

Estimate Mean(const Nodes& nodes, const Values& values) {
  RatioSample sample(nodes.groups);
  for (size_t i = 0; i < values.size(); ++i) sample.Add(nodes.group[i], values[i], 1);
  return sample.Get();
}

// The columns for one setting and one n.
class Columns {
 public:
  Columns(const Nodes& nodes, NodeResult* result) : nodes_(nodes), result_(result) {}
  void Add(const std::string& name, const std::string& optimum, bool closed_form, Values values) {
    NodeColumn column{name, optimum, closed_form, Mean(nodes_, values), {}};
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    column.gap = {nothing, nothing, 0};
    for (size_t c = 0; c < values_.size(); ++c) {
      if (result_->columns[c].name != optimum) continue;
      Values gap = values_[c];
      for (size_t i = 0; i < gap.size(); ++i) gap[i] -= values[i];
      column.gap = Mean(nodes_, gap);
    }
    values_.push_back(std::move(values));
    result_->columns.push_back(std::move(column));
  }

 private:
  const Nodes& nodes_;
  NodeResult* result_;
  std::vector<Values> values_;
};

// Methods of the list, or all, that serve multinomial decoding with n drafts below a node.
absl::StatusOr<std::vector<std::string>> MeasuredMethods(const NodeStudyOptions& options, int n) {
  std::vector<std::string> names = options.methods;
  if (names.empty()) {
    for (const decoding::MethodRow& row : decoding::Methods()) {
      if (row.form != decoding::DraftForm::kNone) names.push_back(std::string(row.name));
    }
  }
  std::vector<std::string> out;
  for (const std::string& name : names) {
    decoding::DecodingParams params = options.base;
    params.method = decoding::FindMethod(name);
    const decoding::MethodRow* row = params.method;
    if (row == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("--methods: unknown method '", name, "'"));
    }
    params.draft_width = n;
    const bool one_path = row->form == decoding::DraftForm::kPath;
    if (decoding::MakeBeamDecoder(params).ok() && (n == 1 || !one_path)) out.push_back(name);
  }
  return out;
}

}  // namespace

absl::Status CheckNodeStudy(const NodeStudyOptions& options) {
  for (const std::string& text : options.samplings) {
    COPPICE_ASSIGN_OR_RETURN(const sampling::SamplingParams sampling, ParseSamplingText(text));
    if (sampling.temperature == 0)
      return absl::InvalidArgumentError("--samplings: T=0 leaves nothing to accept by chance");
  }
  for (const int n : options.drafts) {
    if (n < 1) return absl::InvalidArgumentError("--drafts: expected numbers from 1 on");
    COPPICE_RETURN_IF_ERROR(MeasuredMethods(options, n).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NodeResult>> RunNodeStudy(
    const NodeStudyOptions& options, ModelPair* pair,
    const std::function<void(const std::string&)>& progress) {
  COPPICE_RETURN_IF_ERROR(CheckNodeStudy(options));
  NodeStudy study(options, pair);
  std::vector<NodeResult> results;
  for (const std::string& text : options.samplings) {
    COPPICE_ASSIGN_OR_RETURN(const sampling::SamplingParams sampling, ParseSamplingText(text));
    progress(absl::StrCat(text, ": sampling paths"));
    COPPICE_ASSIGN_OR_RETURN(const Nodes nodes, study.Collect(sampling));
    for (int n : options.drafts) {
      progress(absl::StrCat(text, ": ", n, " drafts at ", nodes.rows.positions(), " nodes"));
      NodeResult result{text, n, nodes.rows.positions(), {}};
      Columns columns(nodes, &result);
      for (const ClosedForm& form : kClosedForms) {
        columns.Add(form.name, form.optimum, true, study.Calculate(form, nodes, sampling, n));
      }
      COPPICE_ASSIGN_OR_RETURN(const auto methods, MeasuredMethods(options, n));
      for (const std::string& method : methods) {
        COPPICE_ASSIGN_OR_RETURN(Values values, study.Measure(method, nodes, sampling, n));
        columns.Add(method, OptimumOf(method), false, std::move(values));
      }
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace coppice::lab
