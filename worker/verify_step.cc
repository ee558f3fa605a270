#include "worker/verify_step.h"

#include <algorithm>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "decoding/logit_check.h"

namespace coppice {
namespace {

class PassLogits : public RowSource {
 public:
  PassLogits(const VerifyRows& rows, absl::Span<const float> logits, int vocab_size,
             const Sequence& sequence, HostThreads* threads)
      : rows_(rows),
        logits_(logits),
        vocab_size_(vocab_size),
        sequence_(sequence),
        threads_(threads) {}
  HostThreads* threads() override { return threads_; }
  // A row that breaks the rules is remembered and read as all zeros.
  absl::Span<const float> Logits(int row) override {
    const absl::Span<const float> logits = Raw(row);
    const int bad = FirstBadLogit(logits);
    if (bad < 0) return logits;
    const std::lock_guard<std::mutex> lock(bad_row_);
    if (status_.ok() || row < lowest_bad_) {  // rows may be read at the same time
      lowest_bad_ = row;
      status_ = absl::InvalidArgumentError(absl::StrCat(
          "target logits of row ", row, " of the round: token ", bad, " is ", logits[bad]));
    }
    zeros_.resize(vocab_size_);
    return zeros_;
  }
  // As the pass left it.
  absl::Span<const float> Raw(int row) const {
    if (rows_.logits_row[row] < 0) return sequence_.root_logits[row];
    return logits_.subspan(static_cast<size_t>(rows_.logits_row[row]) * vocab_size_, vocab_size_);
  }
  const absl::Status& status() const { return status_; }

 private:
  std::mutex bad_row_;
  int lowest_bad_ = 0;
  absl::Status status_;
  std::vector<float> zeros_;
  const VerifyRows& rows_;
  absl::Span<const float> logits_;
  int vocab_size_;
  const Sequence& sequence_;
  HostThreads* threads_;
};

// Logits of the roots that the verdict made of forest nodes.
std::vector<std::vector<float>> KnownRootLogits(const Verdict& verdict, const PassLogits& pass,
                                                size_t old_roots, const Sequence& sequence) {
  const auto roots = sequence.decoder->roots();
  std::vector<std::vector<float>> known(roots.size());
  for (size_t i = 0; i < verdict.node_path.size(); ++i) {
    const auto root = std::find(roots.begin(), roots.end(), verdict.node_path[i]);
    if (root == roots.end()) continue;
    const auto row = pass.Raw(static_cast<int>(old_roots + i));
    known[root - roots.begin()].assign(row.begin(), row.end());
  }
  return known;
}

TokenId RootToken(const Sequence& sequence, PathId root) {
  return root == kRootPath ? sequence.prompt.back() : sequence.decoder->paths().token(root);
}

absl::Status ReserveRoots(Sequence* sequence, BlockManager* blocks, VerifyRows* rows) {
  const PathTree& paths = sequence->decoder->paths();
  for (PathId root : sequence->decoder->roots()) {
    const KvNode parent = root == kRootPath ? kPrefixEnd : sequence->KvOf(paths.parent(root));
    COPPICE_CHECK_MSG(parent != Sequence::kNoKv, "the parent of a root has no KV");
    COPPICE_ASSIGN_OR_RETURN(const KvNode node,
                             blocks->AddNode(sequence->kv, parent, RootToken(*sequence, root)));
    sequence->SetKv(root, node);
    rows->root_kv.push_back(node);
  }
  return absl::OkStatus();
}

absl::Status ReserveForest(const Sequence& sequence, BlockManager* blocks, VerifyRows* rows) {
  const DraftForest& forest = sequence.forest;
  for (int i = 0; i < forest.size(); ++i) {
    const int32_t parent = forest.parent[i];
    COPPICE_ASSIGN_OR_RETURN(
        const KvNode node,
        blocks->AddNode(sequence.kv,
                        parent < 0 ? rows->root_kv[-1 - parent] : rows->node_kv[parent],
                        forest.token[i]));
    rows->node_kv.push_back(node);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<VerifyRows> ReserveRows(Sequence* sequence, BlockManager* blocks) {
  VerifyRows rows;
  COPPICE_RETURN_IF_ERROR(ReserveRoots(sequence, blocks, &rows));
  if (!ReserveForest(*sequence, blocks, &rows).ok()) {
    // Slots already taken are freed by the Retain of this round's commit.
    rows.node_kv.clear();
    sequence->forest = DraftForest::Empty(static_cast<int>(rows.root_kv.size()));
  }
  return rows;
}

void AppendRows(const Sequence& sequence, BatchBuilder* batch, VerifyRows* rows) {
  const auto roots = sequence.decoder->roots();
  for (size_t r = 0; r < roots.size(); ++r) {
    if (sequence.forest.size() > 0 && r < sequence.root_logits.size() &&
        !sequence.root_logits[r].empty()) {
      rows->logits_row.push_back(-1);
      continue;
    }
    rows->logits_row.push_back(batch->AddNodeRow(sequence.kv, rows->root_kv[r],
                                                 RootToken(sequence, roots[r]), /*logits=*/true));
  }
  for (size_t i = 0; i < rows->node_kv.size(); ++i) {
    rows->logits_row.push_back(batch->AddNodeRow(sequence.kv, rows->node_kv[i],
                                                 sequence.forest.token[i], /*logits=*/true));
  }
}

absl::StatusOr<Verdict> Verify(const VerifyRows& rows, absl::Span<const float> logits,
                               int vocab_size, HostThreads* threads, Sequence* sequence) {
  PassLogits pass(rows, logits, vocab_size, *sequence, threads);
  Verdict verdict = sequence->decoder->Advance(sequence->forest, &pass);
  if (!pass.status().ok()) return pass.status();
  sequence->root_logits = KnownRootLogits(verdict, pass, rows.root_kv.size(), *sequence);
  return verdict;
}

}  // namespace coppice
