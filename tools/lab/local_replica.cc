#include "tools/lab/local_replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "worker/kv_commit.h"
#include "worker/root_trie.h"
#include "worker/verify_step.h"

namespace coppice {
namespace {

constexpr int kChunk = 256;  // rows of one pass of prompt or path tokens

absl::StatusOr<absl::Span<const float>> Run(ModelHost* host, BatchBuilder* batch,
                                            std::vector<KvCopy>* commits) {
  batch->AddCommits(std::exchange(*commits, {}));
  return host->model->Forward(batch->Take(), host->pool.get());
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalReplica>> LocalReplica::Load(
    const LocalReplicaOptions& options) {
  std::unique_ptr<LocalReplica> replica(new LocalReplica(MakeSingleCommunicator()));
  ModelHostOptions host;
  host.kv_bytes = options.kv_bytes;
  host.threads = options.threads;
  host.dir = options.target_dir;
  COPPICE_ASSIGN_OR_RETURN(replica->target_, LoadModelHost(host, replica->single_.get()));
  if (options.draft_dir.empty()) return replica;
  host.dir = options.draft_dir;
  COPPICE_ASSIGN_OR_RETURN(replica->draft_, LoadModelHost(host, replica->single_.get()));
  const int draft_vocab = replica->draft_.model->config().vocab_size;
  if (draft_vocab != replica->vocab_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the draft ", options.draft_dir, " has a vocabulary of ", draft_vocab,
        " tokens, the target ", options.target_dir, " one of ", replica->vocab_size()));
  }
  return replica;
}

int LocalReplica::max_positions() const {
  const int target = target_.model->config().max_positions;
  return has_draft() ? std::min(target, draft_.model->config().max_positions) : target;
}

absl::Status LocalReplica::Open(const std::vector<TokenId>& prompt, const DecodingParams& params,
                                bool drafts) {
  COPPICE_CHECK_MSG(sequence_ == nullptr, "one sequence at a time");
  if (prompt.empty()) return absl::InvalidArgumentError("prompt: no token");
  auto sequence = std::make_unique<Sequence>();
  sequence->prompt = prompt;
  sequence->params = params;
  COPPICE_ASSIGN_OR_RETURN(sequence->decoder, MakeBeamDecoder(params));
  int cached_tokens = 0;
  sequence->kv = target_.blocks->Open(prompt, &cached_tokens);
  sequence_ = std::move(sequence);
  if (drafts) session_ = std::make_unique<DraftSession>(params, prompt, draft_.blocks.get());
  return Prefill(&target_, sequence_->kv, prompt, &target_commits_);
}

absl::Status LocalReplica::Prefill(ModelHost* host, SequenceHandle sequence,
                                   absl::Span<const TokenId> prompt, std::vector<KvCopy>* commits) {
  const auto last = prompt.size() - 1;
  for (size_t begin = host->blocks->prefix_length(sequence); begin < last; begin += kChunk) {
    const auto chunk = prompt.subspan(begin, std::min<size_t>(kChunk, last - begin));
    BatchBuilder batch(host->blocks.get());
    COPPICE_ASSIGN_OR_RETURN(const auto slots, host->blocks->AppendPrefix(sequence, chunk));
    batch.AddPrefixRows(sequence, chunk, slots);
    COPPICE_RETURN_IF_ERROR(Run(host, &batch, commits).status());
    host->blocks->EndRound();
  }
  return absl::OkStatus();
}

absl::StatusOr<Verdict> LocalReplica::Round(DraftForest forest) {
  Sequence* sequence = sequence_.get();
  sequence->forest = std::move(forest);
  BatchBuilder batch(target_.blocks.get());
  COPPICE_ASSIGN_OR_RETURN(VerifyRows rows, ReserveRows(sequence, target_.blocks.get()));
  AppendRows(*sequence, &batch, &rows);
  COPPICE_ASSIGN_OR_RETURN(const auto logits, Run(&target_, &batch, &target_commits_));
  absl::StatusOr<Verdict> verdict =
      Verify(rows, logits, vocab_size(), target_.backend->host_threads(), sequence);
  COPPICE_RETURN_IF_ERROR(verdict.status());
  if (!sequence->decoder->finished()) {
    COPPICE_RETURN_IF_ERROR(
        CommitVerdict(*verdict, rows.node_kv, sequence, target_.blocks.get(), &target_commits_));
  }
  target_.blocks->EndRound();
  ++sequence->round;
  return verdict;
}

absl::Status LocalReplica::PrefillDraft() {
  while (session_->prefilling()) {
    BatchBuilder batch(draft_.blocks.get());
    COPPICE_RETURN_IF_ERROR(session_->AppendPrefill(kChunk, &batch));
    COPPICE_RETURN_IF_ERROR(Run(&draft_, &batch, &draft_commits_).status());
    draft_.blocks->EndRound();
  }
  return absl::OkStatus();
}

absl::StatusOr<DraftForest> LocalReplica::Draft(int width, int depth) {
  COPPICE_CHECK_MSG(session_ != nullptr, "opened without drafts");
  RootTrie trie = MakeRootTrie(decoder().paths(), decoder().roots());
  const std::vector<TokenId> tokens = decoder().paths().Tokens(trie.stable);
  const auto added = absl::MakeConstSpan(tokens).subspan(session_->stable_length());
  COPPICE_RETURN_IF_ERROR(session_->ExtendStable(static_cast<int>(tokens.size()), added));
  COPPICE_RETURN_IF_ERROR(PrefillDraft());
  ForestRequest request;  // as the wire would carry it
  request.trie_parent = std::move(trie.parent);
  request.trie_token = std::move(trie.token);
  request.root_trie = std::move(trie.root);
  request.state = decoder().draft_state();
  request.width = width;
  request.depth = depth;
  COPPICE_ASSIGN_OR_RETURN(
      auto builder, ForestBuilder::Start(std::move(request), session_.get(), draft_.blocks.get()));
  while (!builder->done()) {
    BatchBuilder batch(draft_.blocks.get());
    COPPICE_RETURN_IF_ERROR(builder->AppendRows(&batch));
    COPPICE_ASSIGN_OR_RETURN(const auto logits, Run(&draft_, &batch, &draft_commits_));
    COPPICE_RETURN_IF_ERROR(
        builder->Consume(logits, vocab_size(), draft_.backend->host_threads(), &draft_commits_));
    draft_.blocks->EndRound();
  }
  return builder->Shipped();
}

void LocalReplica::Close() {
  if (sequence_ == nullptr) return;
  target_.blocks->Close(sequence_->kv);
  target_.blocks->EndRound();
  session_.reset();
  if (has_draft()) draft_.blocks->EndRound();
  sequence_.reset();
}

absl::StatusOr<std::vector<float>> LocalReplica::PathLogits(ModelHost* host,
                                                            const std::vector<TokenId>& prompt,
                                                            absl::Span<const TokenId> tokens,
                                                            std::vector<KvCopy>* commits) {
  COPPICE_CHECK_MSG(sequence_ == nullptr, "a sequence is open");
  int cached = 0;
  const SequenceHandle kv = host->blocks->Open(prompt, &cached);
  COPPICE_RETURN_IF_ERROR(Prefill(host, kv, prompt, commits));
  std::vector<float> out;
  KvNode node = kPrefixEnd;
  for (size_t begin = 0; begin <= tokens.size(); begin += kChunk) {
    BatchBuilder batch(host->blocks.get());
    for (size_t i = begin; i <= tokens.size() && i < begin + kChunk; ++i) {
      const TokenId token = i == 0 ? prompt.back() : tokens[i - 1];
      COPPICE_ASSIGN_OR_RETURN(node, host->blocks->AddNode(kv, node, token));
      batch.AddNodeRow(kv, node, token, /*logits=*/true);
    }
    COPPICE_ASSIGN_OR_RETURN(const auto logits, Run(host, &batch, commits));
    out.insert(out.end(), logits.begin(), logits.end());
  }
  host->blocks->Close(kv);
  host->blocks->EndRound();
  return out;
}

absl::StatusOr<std::vector<float>> LocalReplica::TargetLogits(const std::vector<TokenId>& prompt,
                                                              absl::Span<const TokenId> tokens) {
  return PathLogits(&target_, prompt, tokens, &target_commits_);
}

absl::StatusOr<std::vector<float>> LocalReplica::DraftLogits(const std::vector<TokenId>& prompt,
                                                             absl::Span<const TokenId> tokens) {
  return PathLogits(&draft_, prompt, tokens, &draft_commits_);
}

absl::Status LocalReplica::CheckIntegrity() const {
  COPPICE_RETURN_IF_ERROR(target_.blocks->CheckIntegrity());
  return has_draft() ? draft_.blocks->CheckIntegrity() : absl::OkStatus();
}

}  // namespace coppice
