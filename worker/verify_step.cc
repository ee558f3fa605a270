#include "worker/verify_step.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "decoding/row_need.h"
#include "sampling/logit_check.h"
#include "sampling/rng.h"
#include "sampling/target_row.h"

namespace coppice::worker {
namespace {

// The rows of one sequence, read from the step.
class RoundRows : public sampling::RowSource, public ScoredRows {
 public:
  RoundRows(const VerifyRows& rows, const kernels::StepRows& step, int vocab_size,
            const Sequence& sequence, HostThreads* threads)
      : rows_(rows),
        step_(step),
        vocab_size_(vocab_size),
        sequence_(sequence),
        threads_(threads),
        log_sum_(rows.need.size(), kUnknown) {}
  HostThreads* threads() override { return threads_; }
  // An invalid row is recorded in status_ and read as all zeros.
  absl::Span<const float> Logits(int row) override {
    if (const CandidateRow* listed = CandidateList(row)) {
      Refuse(row, listed->bad_token, listed->bad_logit);
      return Zeros();
    }
    const absl::Span<const float> logits = Whole(row);
    const int bad = sampling::FirstBadLogit(logits);
    if (bad < 0) return logits;
    Refuse(row, bad, logits[bad]);
    return Zeros();
  }
  const CandidateRow* Listed(int row) override {
    const CandidateRow* listed = CandidateList(row);
    return listed == nullptr || listed->bad_token >= 0 ? nullptr : listed;
  }
  sampling::RawScores Scores(int row, int top) const override {
    if (const CandidateRow* listed = CandidateList(row)) return {*listed, top};
    if (log_sum_[row] != kUnknown) return {Whole(row), top, log_sum_[row]};
    return {Whole(row), top};
  }
  // No two threads read the same row.
  void TellLogSum(int row, double log_sum) override { log_sum_[row] = log_sum; }
  const absl::Status& status() const { return status_; }

  // A copy of the row, whole or as a candidate list.
  KnownRow Copy(int row) const {
    KnownRow known;
    if (const CandidateRow* listed = CandidateList(row)) {
      known.listed = *listed;
    } else {
      const absl::Span<const float> logits = Whole(row);
      known.whole.assign(logits.begin(), logits.end());
    }
    return known;
  }

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();
  const KnownRow& KnownRoot(int row) const { return sequence_.known_roots[row]; }
  const CandidateRow* CandidateList(int row) const {
    if (rows_.need[row] >= 0) return step_.Listed(rows_.need[row]);
    return KnownRoot(row).listed ? &*KnownRoot(row).listed : nullptr;
  }
  absl::Span<const float> Whole(int row) const {
    return rows_.need[row] >= 0 ? step_.Whole(rows_.need[row]) : KnownRoot(row).whole;
  }
  void Refuse(int row, TokenId token, float logit) {
    const std::lock_guard<std::mutex> lock(bad_row_);
    if (!status_.ok() && row >= lowest_bad_) return;  // rows are read concurrently: keep the lowest
    lowest_bad_ = row;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("target logits of row ", row, " of the round: token ", token, " is ", logit));
  }
  absl::Span<const float> Zeros() {
    const std::lock_guard<std::mutex> lock(bad_row_);
    zeros_.resize(vocab_size_);
    return zeros_;
  }

  std::mutex bad_row_;
  int lowest_bad_ = 0;
  absl::Status status_;
  std::vector<float> zeros_;
  const VerifyRows& rows_;
  const kernels::StepRows& step_;
  int vocab_size_;
  const Sequence& sequence_;
  HostThreads* threads_;
  std::vector<double> log_sum_;  // [rows] that the decoder has formed already
};

// The rows of those new roots that were forest nodes.
std::vector<KnownRow> KnownRoots(const decoding::Verdict& verdict, const RoundRows& rows,
                                 size_t old_roots, const Sequence& sequence) {
  const auto roots = sequence.decoder->roots();
  std::vector<KnownRow> known(roots.size());
  absl::flat_hash_map<decoding::PathId, size_t> root_of;
  for (size_t r = 0; r < roots.size(); ++r) root_of.emplace(roots[r], r);
  for (size_t i = 0; i < verdict.node_path.size(); ++i) {
    const auto root = root_of.find(verdict.node_path[i]);
    if (root == root_of.end()) continue;
    known[root->second] = rows.Copy(static_cast<int>(old_roots + i));
  }
  return known;
}

// The needs of the decoder for each row of one round.
class NeedsOfRound {
 public:
  NeedsOfRound(const Sequence& sequence, model::StepBuilder* step)
      : sequence_(sequence), step_(step), need_(NeedOf(sequence)) {}

  // hash: H(path). state: of the output's format. path_of makes the RowPath; called only if the
  // need depends on the tokens.
  template <typename PathOf>
  RowNeed Of(int length, uint64_t hash, OutputFormat::State state, const PathOf& path_of) {
    if (need_.form == RowNeed::Form::kWhole) return need_;
    if (sequence_.params.format != nullptr) return OfAllowed(length, state);
    RowNeed need = need_;
    need.path_hash = hash;
    model::StepBuilder::BiasRange bias;
    if (!sequence_.params.sampling.penalises()) {
      bias = Bias(length);
    } else {
      const auto biases = sampling::SamplingAt(sequence_.params, path_of()).logit_bias;
      if (biases.size() > decoding::kMostListedBiases) return {};
      bias = step_->AddBias(biases);
    }
    need.bias_begin = bias.begin;
    need.bias_end = bias.end;
    return need;
  }

 private:
  static RowNeed NeedOf(const Sequence& sequence) {
    const RowNeed need = sequence.decoder->row_need();
    return sequence.scores.top ? sampling::WithRawScores(need, *sequence.scores.top) : need;
  }
  // Rows after one state of the format share a range.
  RowNeed OfAllowed(int length, OutputFormat::State state) {
    const auto allowed = decoding::AllowedAfter(sequence_.params, length, state);
    if (allowed == nullptr) return {};
    const auto [range, is_new] = allowed_.try_emplace(state);
    if (is_new) {
      std::vector<std::pair<TokenId, double>> tokens;
      for (const TokenId token : allowed->listed) tokens.emplace_back(token, 0.0);
      range->second = step_->AddBias(tokens);
    }
    RowNeed need = need_;
    need.bias_begin = range->second.begin;
    need.bias_end = range->second.end;
    return need;
  }
  // Without penalties there is one range while stop ids are banned (min_tokens), and another
  // afterwards.
  const model::StepBuilder::BiasRange& Bias(int length) {
    std::optional<model::StepBuilder::BiasRange>& range =
        length < sequence_.params.min_tokens ? banned_ : free_;
    if (!range) {
      range = step_->AddBias(sampling::SamplingAt(sequence_.params, length).logit_bias);
    }
    return *range;
  }

  const Sequence& sequence_;
  model::StepBuilder* step_;
  const RowNeed need_;
  std::optional<model::StepBuilder::BiasRange> banned_, free_;
  absl::flat_hash_map<OutputFormat::State, model::StepBuilder::BiasRange> allowed_;
};

// The tokens of a forest node.
sampling::RowPath NodePath(const Sequence& sequence, NodeId node) {
  const decoding::DraftForest& forest = sequence.forest;
  const decoding::PathId root = sequence.decoder->roots()[Index(forest.RootOf(node))];
  std::vector<TokenId> tokens = sequence.decoder->paths().Tokens(root);
  forest.AppendPath(node, &tokens);
  return tokens;
}

TokenId RootToken(const Sequence& sequence, decoding::PathId root) {
  return root == decoding::kRootPath ? sequence.prompt.back()
                                     : sequence.decoder->paths().token(root);
}

absl::Status ReserveRoots(Sequence* sequence, model::BlockManager* blocks, VerifyRows* rows) {
  const decoding::PathTree& paths = sequence->decoder->paths();
  for (decoding::PathId root : sequence->decoder->roots()) {
    const model::KvNode parent =
        root == decoding::kRootPath ? model::kPrefixEnd : sequence->KvOf(paths.parent(root));
    COPPICE_CHECK_MSG(parent != model::kNoKv, "the parent of a root has no KV");
    COPPICE_ASSIGN_OR_RETURN(const model::KvNode node,
                             blocks->AddNode(sequence->kv, parent, RootToken(*sequence, root)));
    sequence->SetKv(root, node);
    rows->root_kv.push_back(node);
  }
  return absl::OkStatus();
}

absl::Status ReserveForest(const Sequence& sequence, model::BlockManager* blocks,
                           VerifyRows* rows) {
  const decoding::DraftForest& forest = sequence.forest;
  for (int i = 0; i < forest.size(); ++i) {
    COPPICE_ASSIGN_OR_RETURN(
        const model::KvNode node,
        blocks->AddNode(sequence.kv, At(forest.parent[i], rows->root_kv, rows->node_kv),
                        forest.token[i]));
    rows->node_kv.push_back(node);
  }
  return absl::OkStatus();
}

absl::Status TooManyStates() {
  return absl::ResourceExhaustedError("the format of the output needs more states than are kept");
}

// The format allows every one of the tokens, of which the last may be a stop id.
absl::Status CheckTokens(const decoding::DecodingParams& params, absl::Span<const TokenId> tokens) {
  OutputFormat::State state = params.format->Start();
  for (const TokenId token : tokens) {
    const auto allowed = params.format->Allowed(state);
    if (params.format->CutShort(state)) return TooManyStates();
    if (!allowed->Has(token)) {
      return absl::FailedPreconditionError(
          allowed->count == 0 ? "the vocabulary has no token that the format of the output allows"
                              : "logit_bias bans every token that the format of the output allows");
    }
    state = params.format->Next(state, token);
    if (state == OutputFormat::kBroken) break;
  }
  return absl::OkStatus();
}

// Checks that nothing was decided from a row whose tokens are not all known, that every beam can
// still get the format of the request, and that every hypothesis at the end has the format.
absl::Status CheckFormat(const Sequence& sequence, const decoding::RoundStart& start) {
  const decoding::DecodingParams& params = sequence.params;
  if (params.format == nullptr) return absl::OkStatus();
  const decoding::BeamDecoder& decoder = *sequence.decoder;
  const decoding::PathTree& paths = decoder.paths();
  const auto cut_short = [&](decoding::PathId path) {
    return params.format->CutShort(paths.format_state(path));
  };
  if (absl::c_any_of(start.roots, cut_short)) return TooManyStates();
  for (int path = start.paths; path < paths.size(); ++path) {
    if (cut_short(decoding::PathId{path})) return TooManyStates();
  }
  for (const decoding::PathId root : decoder.roots()) {
    if (paths.format_state(root) == OutputFormat::kBroken)
      COPPICE_RETURN_IF_ERROR(CheckTokens(params, paths.Tokens(root)));
  }
  if (!decoder.finished()) return absl::OkStatus();
  for (const decoding::Hypothesis& hypothesis : decoder.Result())
    COPPICE_RETURN_IF_ERROR(CheckTokens(params, hypothesis.tokens));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<VerifyRows> ReserveRows(Sequence* sequence, model::BlockManager* blocks) {
  VerifyRows rows;
  COPPICE_RETURN_IF_ERROR(ReserveRoots(sequence, blocks, &rows));
  if (!ReserveForest(*sequence, blocks, &rows).ok()) {
    // Slots already taken are freed by the Retain of this round's commit.
    rows.node_kv.clear();
    sequence->forest = decoding::DraftForest::Empty(static_cast<int>(rows.root_kv.size()));
  }
  return rows;
}

void AppendRows(const Sequence& sequence, model::StepBuilder* step, VerifyRows* rows) {
  const auto roots = sequence.decoder->roots();
  const decoding::PathTree& paths = sequence.decoder->paths();
  const decoding::DraftForest& forest = sequence.forest;
  const int length = sequence.decoder->layers_committed();
  NeedsOfRound needs(sequence, step);
  for (size_t r = 0; r < roots.size(); ++r) {
    if (forest.size() > 0 && r < sequence.known_roots.size() && sequence.known_roots[r].known()) {
      rows->need.push_back(-1);
      continue;
    }
    rows->need.push_back(
        step->AddNodeRow(sequence.kv, rows->root_kv[r], RootToken(sequence, roots[r]),
                         needs.Of(length, paths.hash(roots[r]), paths.format_state(roots[r]),
                                  [&] { return sampling::RowPath(paths.Tokens(roots[r])); })));
  }
  std::vector<uint64_t> hash(forest.size());
  std::vector<int> depth(forest.size());
  const OutputFormat* const format = sequence.params.format.get();
  std::vector<OutputFormat::State> state(forest.size());
  for (int i = 0; i < forest.size(); ++i) {
    const TreePlace parent = forest.parent[i];
    const bool first = parent.is_root();
    hash[i] = sampling::ExtendHash(
        first ? paths.hash(roots[Index(parent.root())]) : hash[Index(parent.node())],
        forest.token[i]);
    depth[i] = first ? 1 : depth[Index(parent.node())] + 1;
    if (format != nullptr) {
      state[i] = format->Next(
          first ? paths.format_state(roots[Index(parent.root())]) : state[Index(parent.node())],
          forest.token[i]);
    }
    rows->need.push_back(step->AddNodeRow(sequence.kv, rows->node_kv[i], forest.token[i],
                                          needs.Of(length + depth[i], hash[i], state[i],
                                                   [&] { return NodePath(sequence, NodeId{i}); })));
  }
}

absl::StatusOr<decoding::Verdict> Verify(const VerifyRows& rows, const kernels::StepRows& step,
                                         int vocab_size, HostThreads* threads, Sequence* sequence) {
  RoundRows round(rows, step, vocab_size, *sequence, threads);
  const auto roots = sequence->decoder->roots();
  const decoding::RoundStart start{{roots.begin(), roots.end()}, sequence->decoder->paths().size()};
  decoding::Verdict verdict = sequence->decoder->Advance(sequence->forest, &round);
  if (!round.status().ok()) return round.status();
  COPPICE_RETURN_IF_ERROR(CheckFormat(*sequence, start));
  if (sequence->scores.top) {
    COPPICE_RETURN_IF_ERROR(sequence->scores.RecordRound(
        start, sequence->forest, sequence->decoder->paths(), round, threads));
  }
  if (sequence->shows_rounds)
    sequence->round_forest = decoding::RoundForestOf(start, sequence->forest, *sequence->decoder);
  sequence->known_roots = KnownRoots(verdict, round, rows.root_kv.size(), *sequence);
  return verdict;
}

}  // namespace coppice::worker
