// One process's worth of the round: target and draft models on tiny checkpoints, with the
// production scheduler, verify step, commit and forest builder, but no socket. Tests compare what
// it decodes with and without drafts.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/communicator.h"
#include "draft_node/draft_session.h"
#include "draft_node/forest_builder.h"
#include "model/model_host.h"
#include "worker/kv_commit.h"
#include "worker/verify_step.h"

namespace coppice {

class LocalReplica {
 public:
  LocalReplica(const std::string& target_dir, const std::string& draft_dir)
      : single_(MakeSingleCommunicator()) {
    target_ = Load(target_dir);
    if (!draft_dir.empty()) draft_ = Load(draft_dir);
  }

  struct Outcome {
    std::vector<Hypothesis> hypotheses;
    int layers = 0, passes = 0;
  };

  // width 0: no drafts. Checks the integrity of both KV tries after every round.
  Outcome Decode(const std::vector<TokenId>& prompt, const DecodingParams& params, int width,
                 int depth) {
    Sequence sequence;
    sequence.prompt = prompt;
    sequence.params = params;
    sequence.decoder = *MakeBeamDecoder(params);
    sequence.kv = target_.blocks->Open(prompt, &sequence.stats.cached_tokens);
    std::unique_ptr<DraftSession> session;
    if (width > 0) session = std::make_unique<DraftSession>(params, prompt, draft_.blocks.get());
    Prefill(&sequence);
    Outcome outcome;
    sequence.forest = DraftForest::Empty(1);
    while (!sequence.decoder->finished()) {
      outcome.layers += Round(&sequence);
      ++outcome.passes;
      if (sequence.decoder->finished()) break;
      const int useful = std::min(depth, sequence.decoder->max_useful_depth());
      sequence.forest =
          session != nullptr && useful > 0
              ? Draft(sequence, session.get(), width, useful)
              : DraftForest::Empty(static_cast<int>(sequence.decoder->roots().size()));
    }
    outcome.hypotheses = sequence.decoder->Result();
    target_.blocks->Close(sequence.kv);
    target_.blocks->EndRound();
    session.reset();
    if (draft_.blocks != nullptr) draft_.blocks->EndRound();
    Check();
    return outcome;
  }

  int64_t target_blocks_used() const { return target_.blocks->counts().used; }
  int64_t draft_blocks_used() const { return draft_.blocks->counts().used; }

 private:
  ModelHost Load(const std::string& dir) {
    ModelHostOptions options;
    options.dir = dir;
    options.kv_bytes = 8 << 20;
    options.threads = 1;
    auto host = LoadModelHost(options, single_.get());
    COPPICE_CHECK_MSG(host.ok(), std::string(host.status().message()));
    return *std::move(host);
  }

  void Check() {
    const absl::Status target = target_.blocks->CheckIntegrity();
    COPPICE_CHECK_MSG(target.ok(), std::string(target.message()));
    if (draft_.blocks == nullptr) return;
    const absl::Status draft = draft_.blocks->CheckIntegrity();
    COPPICE_CHECK_MSG(draft.ok(), std::string(draft.message()));
  }

  absl::Span<const float> Run(ModelHost* host, BatchBuilder* batch, std::vector<KvCopy>* commits) {
    batch->AddCommits(std::exchange(*commits, {}));
    auto logits = host->model->Forward(batch->Take(), host->pool.get());
    COPPICE_CHECK_MSG(logits.ok(), std::string(logits.status().message()));
    return *logits;
  }

  void Prefill(Sequence* sequence) {
    const int begin = target_.blocks->prefix_length(sequence->kv);
    const int count = static_cast<int>(sequence->prompt.size()) - 1 - begin;
    if (count <= 0) return;
    BatchBuilder batch(target_.blocks.get());
    const auto chunk = absl::MakeConstSpan(sequence->prompt).subspan(begin, count);
    batch.AddPrefixRows(sequence->kv, chunk, *target_.blocks->AppendPrefix(sequence->kv, chunk));
    Run(&target_, &batch, &target_commits_);
    target_.blocks->EndRound();
  }

  int Round(Sequence* sequence) {
    BatchBuilder batch(target_.blocks.get());
    VerifyRows rows = *ReserveRows(sequence, target_.blocks.get());
    AppendRows(*sequence, &batch, &rows);
    const auto logits = Run(&target_, &batch, &target_commits_);
    const Verdict verdict = Verify(rows, logits, target_.model->config().vocab_size, sequence);
    if (!sequence->decoder->finished()) {
      const absl::Status status =
          CommitVerdict(verdict, rows.node_kv, sequence, target_.blocks.get(), &target_commits_);
      COPPICE_CHECK_MSG(status.ok(), std::string(status.message()));
    }
    target_.blocks->EndRound();
    Check();
    ++sequence->round;
    return verdict.stats.layers;
  }

  // The draft as the wire would carry it: stable tokens and the trie of the roots.
  DraftForest Draft(const Sequence& sequence, DraftSession* session, int width, int depth) {
    const PathTree& paths = sequence.decoder->paths();
    std::vector<PathId> parents;
    for (PathId root : sequence.decoder->roots()) parents.push_back(paths.parent(root));
    const PathId stable = paths.CommonAncestor(parents);
    const std::vector<TokenId> tokens = paths.Tokens(stable);
    const auto added = absl::MakeConstSpan(tokens).subspan(session->stable_length());
    COPPICE_CHECK(session->ExtendStable(static_cast<int>(tokens.size()), added).ok());
    while (session->prefilling()) {
      BatchBuilder batch(draft_.blocks.get());
      COPPICE_CHECK(session->AppendPrefill(64, &batch).ok());
      Run(&draft_, &batch, &draft_commits_);
      draft_.blocks->EndRound();
    }
    ForestRequest request;
    request.width = width;
    request.depth = depth;
    request.state = sequence.decoder->draft_state();
    for (PathId root : sequence.decoder->roots()) {
      std::vector<PathId> chain;
      for (PathId path = root; path != stable; path = paths.parent(path)) chain.push_back(path);
      int32_t parent = -1;
      for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
        request.trie_parent.push_back(parent);
        request.trie_token.push_back(paths.token(*it));
        parent = static_cast<int32_t>(request.trie_token.size()) - 1;
      }
      request.root_trie.push_back(parent);
    }
    auto builder = ForestBuilder::Start(std::move(request), session, draft_.blocks.get());
    COPPICE_CHECK_MSG(builder.ok(), std::string(builder.status().message()));
    while (!(*builder)->done()) {
      BatchBuilder batch(draft_.blocks.get());
      COPPICE_CHECK((*builder)->AppendRows(&batch).ok());
      const auto logits = Run(&draft_, &batch, &draft_commits_);
      COPPICE_CHECK(
          (*builder)->Consume(logits, draft_.model->config().vocab_size, &draft_commits_).ok());
      draft_.blocks->EndRound();
    }
    return (*builder)->Shipped();
  }

  std::unique_ptr<Communicator> single_;
  ModelHost target_, draft_;
  std::vector<KvCopy> target_commits_, draft_commits_;
};

}  // namespace coppice
