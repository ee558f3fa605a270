#include "draft_node/draft_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/stop_signal.h"

namespace coppice::draft_node {
namespace {

constexpr int kPromptsPart = 4;  // 1 / kPromptsPart of the rows of a step, while prompts wait

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
      const auto& [key, slot] = entry;
      const bool works =
          slot.builder != nullptr || (slot.waiting != nullptr && !slot.session->LacksStates());
      return !works && now - slot.last_used_s > options_.session_idle_s;
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
           return entry.second.session->CanPrefill();
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
      case proto::DraftCommand::kStates:
        TakeStates(*peer, command.states());
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

void DraftService::Begin(const Key& key, Slot* slot) {
  const std::unique_ptr<decoding::DraftRequest> request = std::move(slot->waiting);
  const uint32_t round = request->round;
  auto builder = ForestBuilder::Start(std::move(*request), slot->session.get(), blocks_);
  if (!builder.ok()) return Fail(key, round, std::string(builder.status().message()));
  const BlockModel drafter = {runner_->config().block, runner_->markov()};
  if (drafter.used()) (*builder)->UseBlocks(drafter, runner_->vocab_size(), options_.max_rows);
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
    if (budget <= 0 || !slot.session->CanPrefill() || slot.session->WaitsForPrefix(&readers))
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
                     [](const auto& slot) { return slot.second.session->CanPrefill(); });
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

uint32_t DraftService::RoundOf(const Slot& slot) {
  if (slot.builder != nullptr) return slot.builder->round();
  return slot.waiting != nullptr ? slot.waiting->round : 0;
}

void DraftService::FailLater(const Key& key, const absl::Status& why) {
  failed_.emplace_back(key, why.message());
}

void DraftService::FailThose() {
  for (const auto& [key, why] : std::exchange(failed_, {})) {
    const auto found = slots_.find(key);
    if (found == slots_.end()) continue;
    Fail(key, RoundOf(found->second), why);
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
