#include "draft_node/draft_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "decoding/draft_size.h"
#include "proto/convert.h"

namespace coppice::draft_node {
namespace {

constexpr int kPromptsPart = 4;  // 1 / kPromptsPart of the rows of a step, while prompts wait

// The number of positions that a request needs: those of the longest root, and one per level below
// it.
int64_t PositionsNeeded(const DraftSession& session, const decoding::DraftRequest& request) {
  const TokenTree& tree = request.roots.tree;
  std::vector<int64_t> length(tree.rows(), 0);
  int64_t longest = 0;
  for (int i = 0; i < tree.size(); ++i) {
    int64_t& own = length[tree.RowOf(NodeId{i})];
    own = 1 + length[tree.RowOf(tree.parent[i])];
    longest = std::max(longest, own);
  }
  return session.prompt_length() + int64_t{request.stable_length} + longest + request.depth - 1;
}

// The forest, and every level of it, must fit in a step.
absl::Status CheckShape(const decoding::DraftSize& size, const decoding::DraftRequest& request,
                        int max_rows) {
  if (!size.drafts) return absl::InvalidArgumentError("method: it drafts nothing");
  const auto within = [max_rows](int value) { return value >= 1 && value <= max_rows; };
  if (!within(request.width) || !within(request.depth) ||
      !within(size.Nodes(request.width, request.depth))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "width x depth: ", request.width, " x ", request.depth, " is not in [1, ", max_rows, "]"));
  }
  if (size.beams <= max_rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("draft_beams: ", size.beams, " is more than a pass of ", max_rows, " rows"));
}

}  // namespace

DraftService::DraftService(const DraftServiceOptions& options, model::ModelRunner* runner,
                           comm::ServerChannel* leaders, comm::NodeAgent* agent, const Clock* clock)
    : options_(options),
      formats_(options.vocabulary, options.catalogues),
      runner_(runner),
      blocks_(runner->blocks()),
      threads_(runner->threads()),
      leaders_(leaders),
      agent_(agent),
      clock_(clock),
      energy_(options.energy) {}

DraftService::~DraftService() = default;

absl::Status DraftService::Run() {
  PublishStatus();
  while (!stopped_ && !StopRequested()) COPPICE_RETURN_IF_ERROR(RunOnce(500));
  return absl::OkStatus();
}

absl::Status DraftService::RunOnce(int timeout_ms) {
  const bool was_idle = !HasWork();
  if (was_idle) {
    runner_->progress_watchdog()->Wait();
    threads_->KeepAwake(false);  // the current forest may have been closed
    std::vector<comm::Pollable> sockets = {leaders_->socket()};
    if (agent_ != nullptr) sockets.push_back(agent_->socket());
    if (!comm::PollAwake(sockets, awake_until_s_)) comm::Poll(sockets, timeout_ms);
    runner_->progress_watchdog()->Begin();
  }
  TakeCoordinatorMessages();
  TakeCommands();
  if (HasWork()) {
    if (was_idle) energy_.Idle(clock_->NowSeconds());
    COPPICE_RETURN_IF_ERROR(Step());
  }
  blocks_->EndRound();
  if (const double now = clock_->NowSeconds(); now - last_sweep_s_ > 1) {
    last_sweep_s_ = now;
    std::erase_if(slots_, [&](const auto& entry) {
      return entry.second.builder == nullptr && entry.second.waiting == nullptr &&
             now - entry.second.last_used_s > options_.session_idle_s;
    });
    PublishStatus();
  }
  return absl::OkStatus();
}

bool DraftService::Drafting() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const auto& entry) { return entry.second.builder != nullptr; });
}

bool DraftService::HasWork() const {
  return Drafting() || std::any_of(slots_.begin(), slots_.end(), [](const auto& entry) {
           return entry.second.session->prefilling();
         });
}

void DraftService::TakeCoordinatorMessages() {
  if (agent_ == nullptr) return;
  while (auto message = agent_->Receive()) {
    if (message->has_stop()) {
      spdlog::info("the coordinator says stop: {}", message->stop().reason());
      stopped_ = true;
    }
  }
}

void DraftService::TakeCommands() {
  proto::DraftCommand command;
  while (auto peer = leaders_->Receive(&command)) {
    switch (command.kind_case()) {
      case proto::DraftCommand::kAnnounce:
        awake_until_s_ = clock_->NowSeconds() + comm::kStayAwake_s;
        break;
      case proto::DraftCommand::kOpen:
        Open(*peer, command.open());
        break;
      case proto::DraftCommand::kDraft:
        awake_until_s_ = 0;
        Accept(*peer, command.draft());
        break;
      case proto::DraftCommand::kClose:
        Drop([&](const Key& key) { return key == Key(*peer, command.close().session_id()); });
        break;
      default:
        spdlog::warn("a leader sent an empty draft command; dropped");
    }
  }
  for (const std::string& gone : leaders_->TakeGone()) {
    Drop([&](const Key& key) { return key.first == gone; });
  }
}

void DraftService::Drop(absl::FunctionRef<bool(const Key&)> which) {
  std::erase_if(slots_, [&](const auto& entry) { return which(entry.first); });
  blocks_->EndRound();  // the next command may use their KV
}

void DraftService::Open(const std::string& peer, const proto::OpenDraft& open) {
  const Key key{peer, open.session_id()};
  Drop([&](const Key& other) { return other == key; });
  if (static_cast<int>(slots_.size()) >= options_.max_sessions) {
    return Fail(key, 0, absl::StrCat("all ", options_.max_sessions, " sessions are taken"));
  }
  auto params = proto::DecodingFromMessage(open.decoding());
  if (!params.ok()) return Fail(key, 0, std::string(params.status().message()));
  std::vector<TokenId> prompt(open.prompt().begin(), open.prompt().end());
  const std::vector<TokenId> stable(open.stable_tokens().begin(), open.stable_tokens().end());
  if (prompt.empty()) return Fail(key, 0, "prompt: empty");
  const int positions = runner_->config().max_positions;
  if (const size_t length = prompt.size() + stable.size();
      length > static_cast<size_t>(positions)) {
    return Fail(
        key, 0,
        absl::StrCat("prompt: ", length, " tokens, the draft model has ", positions, " positions"));
  }
  absl::Status tokens = proto::CheckTokens(prompt, runner_->vocab_size(), "prompt");
  tokens.Update(proto::CheckTokens(stable, runner_->vocab_size(), "stable_tokens"));
  if (!tokens.ok()) return Fail(key, 0, std::string(tokens.message()));
  if (params->format_spec.kind != FormatSpec::Kind::kNone) {
    auto format = formats_.Find(params->format_spec, params->stop_ids);
    if (format.ok()) {
      params->format = *std::move(format);
    } else if (!absl::IsFailedPrecondition(format.status())) {
      return Fail(key, 0, std::string(format.status().message()));
    }
  }
  Slot slot;
  slot.session = std::make_unique<DraftSession>(*std::move(params), std::move(prompt), blocks_);
  if (open.log_probs()) slot.session->ShowLogProbs();
  const absl::Status extended = slot.session->ExtendStable(static_cast<int>(stable.size()), stable);
  if (!extended.ok()) return Fail(key, 0, std::string(extended.message()));
  slot.last_used_s = clock_->NowSeconds();
  slot.trace_id = proto::TraceFromMessage(open.trace()).trace_id;
  LogFields(spdlog::level::debug, "session begins",
            {{"session", absl::StrCat(open.session_id())},
             {"trace_id", TextOrNone(slot.trace_id)},
             {"prompt_tokens", static_cast<int64_t>(open.prompt_size())}});
  slots_[key] = std::move(slot);
  TellPrefilled(key);  // a prompt of one token needs no prefill
}

void DraftService::Accept(const std::string& peer, const proto::DraftRequest& message) {
  const Key key{peer, message.session_id()};
  auto found = slots_.find(key);
  if (found == slots_.end()) return Fail(key, message.round(), "unknown session");
  Slot& slot = found->second;
  // A newer round replaces the one in flight. Nodes whose rows never ran must not count as known.
  if (slot.builder != nullptr && !slot.builder->started()) {
    blocks_->Retain(slot.session->sequence(), {});
  }
  slot.builder.reset();
  slot.last_used_s = slot.request_time_s = clock_->NowSeconds();
  slot.model_s = 0;
  auto request = proto::DraftRequestFromMessage(message, runner_->vocab_size());
  if (!request.ok()) return Fail(key, message.round(), std::string(request.status().message()));
  const int positions = runner_->config().max_positions;
  if (const int64_t needed = PositionsNeeded(*slot.session, *request); needed > positions) {
    return Fail(key, request->round,
                absl::StrCat("depth: the request needs ", needed,
                             " positions, the draft model has ", positions));
  }
  absl::Status fits = slot.session->ExtendStable(request->stable_length, request->stable_tokens);
  fits.Update(
      CheckShape(decoding::DraftSizeOf(slot.session->params()), *request, options_.max_rows));
  if (!fits.ok()) return Fail(key, request->round, std::string(fits.message()));
  request->state.root_hash = decoding::RootHashes(request->roots, slot.session->stable_hash());
  slot.waiting = std::make_unique<decoding::DraftRequest>(*std::move(request));
  if (!slot.session->prefilling()) Begin(key, &slot);
}

void DraftService::Begin(const Key& key, Slot* slot) {
  const std::unique_ptr<decoding::DraftRequest> request = std::move(slot->waiting);
  const uint32_t round = request->round;
  auto builder = ForestBuilder::Start(std::move(*request), slot->session.get(), blocks_);
  if (!builder.ok()) return Fail(key, round, std::string(builder.status().message()));
  if ((*builder)->rows() > options_.max_rows) {
    return Fail(key, round, "more tokens to catch up with than one pass holds");
  }
  slot->builder = *std::move(builder);
}

// All sessions, so that they take turns: first the one that did not fit into the last step.
std::vector<DraftService::Key> DraftService::Turns() const {
  std::vector<Key> turns;
  const auto first = slots_.lower_bound(first_);
  for (auto it = first; it != slots_.end(); ++it) turns.push_back(it->first);
  for (auto it = slots_.begin(); it != first; ++it) turns.push_back(it->first);
  return turns;
}

void DraftService::AddForests(absl::Span<const Key> turns, model::StepBuilder* step,
                              std::vector<KeyRows>* stepped) {
  bool all_fit = true;
  for (const Key& key : turns) {
    Slot& slot = slots_.at(key);
    if (slot.builder == nullptr) continue;
    if (step->rows() + slot.builder->rows() > options_.max_rows) {
      if (std::exchange(all_fit, false)) first_ = key;
      continue;
    }
    const int before = step->rows();
    const absl::Status added = slot.builder->AppendRows(step);
    if (!added.ok()) {
      FailLater(key, added);
    } else {
      stepped->push_back({key, step->rows() - before});
    }
  }
}

void DraftService::AddPrefills(absl::Span<const Key> turns, model::StepBuilder* step,
                               std::vector<KeyRows>* prefilled) {
  int budget = std::min(options_.prefill_chunk, options_.max_rows - step->rows());
  model::PrefixReaders readers;
  for (const Key& key : turns) {
    Slot& slot = slots_.at(key);
    if (budget <= 0 || !slot.session->prefilling() || slot.session->WaitsForPrefix(&readers))
      continue;
    const int before = step->rows();
    if (auto status = slot.session->AppendPrefill(budget, step, runner_->commits()); !status.ok()) {
      FailLater(key, status);
    }
    prefilled->push_back({key, step->rows() - before});
    budget -= prefilled->back().rows;
  }
}

// Whether prompts still wait for rows, and the forests have left them few of this step.
bool DraftService::PromptsLackRows(absl::Span<const KeyRows> prefilled) const {
  int rows = 0;
  for (const KeyRows& prefill : prefilled) rows += prefill.rows;
  if (rows >= std::min(options_.prefill_chunk, options_.max_rows / kPromptsPart)) return false;
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return slot.second.session->prefilling(); });
}

absl::Status DraftService::Step() {
  COPPICE_RETURN_IF_ERROR(StepOnDevice());
  model::StepBuilder step = runner_->NewStep();
  std::vector<KeyRows> stepped, prefilled;
  const std::vector<Key> turns = Turns();
  const bool prompts_first = std::exchange(prompts_first_, false);
  if (prompts_first) AddPrefills(turns, &step, &prefilled);
  AddForests(turns, &step, &stepped);
  if (!prompts_first) {
    AddPrefills(turns, &step, &prefilled);
    prompts_first_ = PromptsLackRows(prefilled);
  }
  if (!step.empty()) {
    const double begin_s = clock_->NowSeconds();
    COPPICE_RETURN_IF_ERROR(runner_->Submit(std::move(step)));
    runner_->WaitForHead();
    const double head_begin_s = clock_->NowSeconds();
    if (last_end_s_ < options_.announce_within_s) Announce(stepped);
    const auto rows = runner_->Wait();
    threads_->Wait();  // until the announcement is sent
    COPPICE_RETURN_IF_ERROR(rows.status());
    const double model_s = clock_->NowSeconds() - begin_s;
    ShareEnergy(stepped, prefilled);
    threads_->KeepAwake(!stepped.empty());
    for (const KeyRows& forest : stepped) Grow(forest.key, **rows, model_s);
    if (!stepped.empty()) last_end_s_ = clock_->NowSeconds() - head_begin_s;
    threads_->KeepAwake(Drafting());  // the next level follows immediately
  }
  FailThose();
  BeginPrefilled();
  for (const KeyRows& prefill : prefilled) TellPrefilled(prefill.key);
  return absl::OkStatus();
}

// Adds the next level to a forest.
void DraftService::Grow(const Key& key, const kernels::StepRows& rows, double model_s) {
  Slot& slot = slots_.at(key);
  slot.model_s += model_s;
  const absl::Status grown = slot.builder->Consume(rows, threads_, runner_->commits());
  runner_->progress_watchdog()->MovesOn();
  if (!grown.ok()) {
    FailLater(key, grown);
  } else if (slot.builder->done()) {
    Reply(key, &slot);
  }
}

void DraftService::FailLater(const Key& key, const absl::Status& why) {
  failed_.emplace_back(key, why.message());
}

void DraftService::FailThose() {
  for (const auto& [key, why] : std::exchange(failed_, {})) {
    const auto found = slots_.find(key);
    if (found == slots_.end()) continue;
    const auto& builder = found->second.builder;
    Fail(key, builder != nullptr ? builder->round() : 0, why);
  }
}

// Wakes the leaders whose forests will be finished by this pass.
void DraftService::Announce(absl::Span<const KeyRows> stepped) {
  std::vector<std::string> waiting;
  for (const auto& [key, rows] : stepped) {
    if (slots_.at(key).builder->at_last_level()) waiting.push_back(key.first);
  }
  if (waiting.empty()) return;
  std::sort(waiting.begin(), waiting.end());
  waiting.erase(std::unique(waiting.begin(), waiting.end()), waiting.end());
  threads_->Post([this, waiting = std::move(waiting)] {
    proto::DraftReply reply;
    reply.set_announces(true);
    for (const std::string& peer : waiting) leaders_->Send(peer, reply).IgnoreError();
  });
}

void DraftService::BeginPrefilled() {
  std::vector<Key> ready;
  for (const auto& [key, slot] : slots_) {
    if (slot.waiting != nullptr && !slot.session->prefilling()) ready.push_back(key);
  }
  for (const Key& key : ready) Begin(key, &slots_.at(key));
}

}  // namespace coppice::draft_node
