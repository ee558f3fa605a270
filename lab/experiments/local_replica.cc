#include "lab/experiments/local_replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "draft_node/device_forests.h"
#include "worker/kv_commit.h"
#include "worker/verify_step.h"

namespace coppice::lab {
namespace {

absl::StatusOr<const kernels::StepRows*> Run(model::ModelRunner* runner, model::StepBuilder step) {
  COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
  return runner->Wait();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalReplica>> LocalReplica::Load(
    const LocalReplicaOptions& options) {
  std::unique_ptr<LocalReplica> replica(
      new LocalReplica(comm::MakeSingleCommunicator(), options.chunk));
  model::ModelRunnerOptions model;
  model.kv_bytes = options.kv_bytes;
  model.threads = options.threads;
  model.max_rows = options.max_rows;
  model.backend = options.backend;
  model.always_list = options.always_list;
  model.exact = options.exact;
  model.device_forests = options.device_forests;
  model.free_windows = options.free_windows;
  model.dir = options.target_dir;
  model.weight_dtype = options.target_weights;
  // A draft that cannot be read is named when it is loaded, after the target.
  const auto draft = model::ReadModelConfig(options.draft_dir);
  if (draft.ok() && draft->takes_states()) model.states_for = options.draft_dir;
  COPPICE_ASSIGN_OR_RETURN(replica->target_,
                           model::ModelRunner::Load(model, replica->single_.get()));
  if (options.draft_dir.empty()) return replica;
  if (!model.states_for.empty())
    replica->states_ = std::make_unique<worker::PoolStates>(replica->target_.get());
  model.states_for.clear();
  model.target = options.target_dir;
  model.dir = options.draft_dir;
  model.weight_dtype = options.draft_weights;
  model.exact = false;  // the draft model need not be exact
  COPPICE_ASSIGN_OR_RETURN(replica->draft_,
                           model::ModelRunner::Load(model, replica->single_.get()));
  const int draft_vocab = replica->draft_->vocab_size();
  if (draft_vocab != replica->vocab_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the draft ", options.draft_dir, " has a vocabulary of ", draft_vocab,
        " tokens, the target ", options.target_dir, " one of ", replica->vocab_size()));
  }
  return replica;
}

int LocalReplica::max_positions() const {
  const int target = target_->config().max_positions;
  return has_draft() ? std::min(target, draft_->config().max_positions) : target;
}

absl::Status LocalReplica::Open(const std::vector<TokenId>& prompt,
                                const decoding::DecodingParams& params, bool drafts,
                                bool draft_knows_format) {
  COPPICE_CHECK_MSG(sequence_ == nullptr, "one sequence at a time");
  if (prompt.empty()) return absl::InvalidArgumentError("prompt: no token");
  auto sequence = std::make_unique<worker::Sequence>();
  sequence->prompt = prompt;
  sequence->params = params;
  COPPICE_ASSIGN_OR_RETURN(sequence->decoder, decoding::MakeBeamDecoder(params));
  int cached_tokens = 0;
  sequence->kv = target_->blocks()->Open(prompt, &cached_tokens);
  sequence_ = std::move(sequence);
  if (drafts) {
    decoding::DecodingParams known = params;
    if (!draft_knows_format) known.format = nullptr;
    session_ = std::make_unique<draft_node::DraftSession>(
        known, prompt, draft_->blocks(), draft_node::StateNeedsOf(draft_->config()));
    sent_states_ = worker::SentStates();
  }
  return Prefill(target_.get(), sequence_->kv, prompt);
}

absl::Status LocalReplica::Prefill(model::ModelRunner* runner, model::SequenceHandle sequence,
                                   absl::Span<const TokenId> prompt) {
  const auto last = prompt.size() - 1;
  for (size_t begin = runner->blocks()->prefix_length(sequence); begin < last; begin += chunk_) {
    const auto chunk = prompt.subspan(begin, std::min<size_t>(chunk_, last - begin));
    model::StepBuilder step = runner->NewStep();
    COPPICE_ASSIGN_OR_RETURN(const auto slots, runner->blocks()->AppendPrefix(sequence, chunk));
    step.AddPrefixRows(sequence, chunk, slots);
    COPPICE_RETURN_IF_ERROR(Run(runner, std::move(step)).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<decoding::Verdict> LocalReplica::Round(decoding::DraftForest forest) {
  worker::Sequence* sequence = sequence_.get();
  sequence->forest = std::move(forest);
  model::StepBuilder step = target_->NewStep();
  COPPICE_ASSIGN_OR_RETURN(worker::VerifyRows rows,
                           worker::ReserveRows(sequence, target_->blocks()));
  worker::AppendRows(*sequence, &step, &rows);
  COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* read, Run(target_.get(), std::move(step)));
  absl::StatusOr<decoding::Verdict> verdict =
      worker::Verify(rows, *read, vocab_size(), target_->threads(), sequence);
  COPPICE_RETURN_IF_ERROR(verdict.status());
  if (!sequence->decoder->finished() &&
      !worker::CommitVerdict(*verdict, rows.node_kv, sequence, target_->blocks(),
                             target_->commits())) {
    return absl::ResourceExhaustedError("no KV blocks for the tokens that the beams share");
  }
  ++sequence->round;
  return verdict;
}

// As a leader sends them; those of the prompt before the first request.
absl::Status LocalReplica::AddStates(decoding::DraftRequest* request) {
  const auto read = [this](const worker::WantedRows& rows, decoding::RowStates* states) {
    states->first = rows.first;
    states->count = rows.count;
    return states_->Read(*sequence_, rows, &states->values);
  };
  const auto prompt = static_cast<uint32_t>(sequence_->prompt.size());
  if (sent_states_.rows() < prompt) {
    decoding::RowStates states;
    COPPICE_RETURN_IF_ERROR(read({sent_states_.rows(), prompt - sent_states_.rows(), {}}, &states));
    COPPICE_RETURN_IF_ERROR(session_->TakeStates(states));
    sent_states_.Sent(prompt);
  }
  worker::SentStates::Lacking lacking = sent_states_.Ask(
      decoder().paths(), worker::StablePath(*sequence_), request->roots, static_cast<int>(prompt));
  COPPICE_RETURN_IF_ERROR(read(lacking.rows, &request->states));
  request->states.nodes = std::move(lacking.nodes);
  return session_->TakeStates(request->states);
}

absl::Status LocalReplica::PrefillDraft() {
  while (session_->CanPrefill()) {
    model::StepBuilder step = draft_->NewStep();
    COPPICE_RETURN_IF_ERROR(session_->AppendPrefill(chunk_, &step, draft_->commits()));
    if (!step.empty()) COPPICE_RETURN_IF_ERROR(Run(draft_.get(), std::move(step)).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<decoding::DraftForest> LocalReplica::Draft(int width, int depth) {
  COPPICE_CHECK_MSG(session_ != nullptr, "opened without drafts");
  decoding::DraftRequest request =  // the request that a worker would send
      decoding::MakeDraftRequest(decoder(), width, depth, session_->stable_length());
  COPPICE_RETURN_IF_ERROR(
      session_->ExtendStable(static_cast<int>(request.stable_length), request.stable_tokens));
  if (states_ != nullptr) COPPICE_RETURN_IF_ERROR(AddStates(&request));
  COPPICE_RETURN_IF_ERROR(PrefillDraft());
  COPPICE_ASSIGN_OR_RETURN(auto builder, draft_node::ForestBuilder::Start(
                                             std::move(request), session_.get(), draft_->blocks()));
  const draft_node::BlockModel blocks = {draft_->config().block, draft_->markov()};
  if (blocks.used()) builder->UseBlocks(blocks, draft_->vocab_size(), draft_->max_rows());
  if (builder->GrowsOnDevice(*draft_)) {
    draft_node::ForestBuilder* const alone[] = {builder.get()};
    COPPICE_RETURN_IF_ERROR(draft_node::SubmitForests(alone, draft_.get()));
    COPPICE_ASSIGN_OR_RETURN(const auto grown, draft_node::WaitForForests(alone, draft_.get()));
    COPPICE_RETURN_IF_ERROR(grown[0]);
  }
  while (!builder->done()) {
    model::StepBuilder step = draft_->NewStep();
    COPPICE_RETURN_IF_ERROR(builder->AppendRows(&step));
    COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, Run(draft_.get(), std::move(step)));
    COPPICE_RETURN_IF_ERROR(builder->Consume(*rows, draft_->threads(), draft_->commits()));
  }
  sent_states_.Answered();
  return builder->Sent();
}

void LocalReplica::Close() {
  if (sequence_ == nullptr) return;
  target_->blocks()->Close(sequence_->kv);
  target_->blocks()->EndRound();
  session_.reset();
  if (has_draft()) draft_->blocks()->EndRound();
  sequence_.reset();
}

absl::StatusOr<std::vector<float>> LocalReplica::PathLogits(model::ModelRunner* runner,
                                                            const std::vector<TokenId>& prompt,
                                                            absl::Span<const TokenId> tokens) {
  COPPICE_CHECK_MSG(sequence_ == nullptr, "a sequence is open");
  int cached = 0;
  model::BlockManager* blocks = runner->blocks();
  const model::SequenceHandle kv = blocks->Open(prompt, &cached);
  COPPICE_RETURN_IF_ERROR(Prefill(runner, kv, prompt));
  std::vector<float> out;
  model::KvNode node = model::kPrefixEnd;
  for (size_t begin = 0; begin <= tokens.size(); begin += chunk_) {
    model::StepBuilder step = runner->NewStep();
    std::vector<int> needs;
    for (size_t i = begin; i <= tokens.size() && i < begin + chunk_; ++i) {
      const TokenId token = i == 0 ? prompt.back() : tokens[i - 1];
      COPPICE_ASSIGN_OR_RETURN(node, blocks->AddNode(kv, node, token));
      needs.push_back(step.AddNodeRow(kv, node, token, RowNeed()));
    }
    COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, Run(runner, std::move(step)));
    for (int need : needs) {
      const absl::Span<const float> row = rows->Whole(need);
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  blocks->Close(kv);
  blocks->EndRound();
  return out;
}

absl::StatusOr<std::vector<float>> LocalReplica::TargetLogits(const std::vector<TokenId>& prompt,
                                                              absl::Span<const TokenId> tokens) {
  return PathLogits(target_.get(), prompt, tokens);
}

absl::StatusOr<std::vector<float>> LocalReplica::DraftLogits(const std::vector<TokenId>& prompt,
                                                             absl::Span<const TokenId> tokens) {
  if (states_ != nullptr) {
    return absl::UnimplementedError(
        "rows of a draft that takes states of the target are known only in its forests");
  }
  return PathLogits(draft_.get(), prompt, tokens);
}

absl::Status LocalReplica::CheckIntegrity() const {
  COPPICE_RETURN_IF_ERROR(target_->blocks()->CheckIntegrity());
  return has_draft() ? draft_->blocks()->CheckIntegrity() : absl::OkStatus();
}

}  // namespace coppice::lab
