#include "model/model_runner.h"

#include <sched.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "model/load_transformer.h"
#include "model/model_memory.h"
#include "sampling/candidate_list.h"

namespace coppice::model {
namespace {

constexpr int64_t kLeastBlocks = 8;
constexpr int kMostThreads = 1024;  // a larger number is taken for a mistake

// Every rank's pool has as many blocks as the smallest, so that block ids mean the same everywhere.
// Collective.
absl::StatusOr<int64_t> AgreeOnBlocks(int64_t mine, comm::Communicator* communicator) {
  // Two floats hold the count exactly.
  constexpr int64_t kHalf = 1 << 20;
  mine = std::clamp<int64_t>(mine, 0, kHalf * kHalf - 1);
  std::vector<float> halves(2 * communicator->size());
  halves[2 * communicator->rank()] = static_cast<float>(mine / kHalf);
  halves[2 * communicator->rank() + 1] = static_cast<float>(mine % kHalf);
  COPPICE_RETURN_IF_ERROR(communicator->AllReduceSum(absl::MakeSpan(halves)));
  int64_t least = mine;
  for (size_t i = 0; i < halves.size(); i += 2) {
    least = std::min(least,
                     static_cast<int64_t>(halves[i]) * kHalf + static_cast<int64_t>(halves[i + 1]));
  }
  return least;
}

// How many tokens the pool has room for: those of short sequences, and those of one long sequence.
std::string PoolTokens(const KvLayout& layout, int64_t pages) {
  const int64_t held = pages / layout.groups() * kBlockSize;
  if (layout.windows.empty()) return absl::StrCat(held, " tokens");
  if (std::find(layout.windows.begin(), layout.windows.end(), 0) == layout.windows.end())
    return absl::StrCat(held, " tokens inside of windows");
  int64_t one = held / kBlockSize;  // blocks
  while (layout.PagesOf((one + 1) * kBlockSize) <= pages) ++one;
  return absl::StrCat(held, " tokens of short sequences or ", one * kBlockSize, " of a long one");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Load(const ModelRunnerOptions& options,
                                                               comm::Communicator* communicator) {
  if (options.threads < 0 || options.threads > kMostThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads: ", options.threads, ", expected 0 to ", kMostThreads));
  }
  if (options.kv_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv_bytes: ", options.kv_bytes, ", expected at least 0"));
  }
  if (!(options.gpu_memory > 0 && options.gpu_memory <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpu_memory: ", options.gpu_memory, ", expected above 0, at most 1"));
  }
  const int cores = AvailableCores(), threads = options.threads > 0 ? options.threads : cores;
  if (threads > cores) {
    spdlog::warn("threads: {}, but this process may use {} core{}: passes will be slower", threads,
                 cores, cores == 1 ? "" : "s");
  }
  std::unique_ptr<ModelRunner> runner(new ModelRunner(options, threads));
  COPPICE_RETURN_IF_ERROR(runner->Init(communicator));
  return runner;
}

absl::Status ModelRunner::Init(comm::Communicator* communicator) {
  const SteadyClock clock;
  const double begin_s = clock.NowSeconds();
  kernels::BackendOptions backend = {options_.backend, &threads_, communicator};
  backend.always_list = options_.always_list;
  backend.graphs = options_.graphs;
  backend.collectives = options_.collectives;
  backend.cpu_kernels = options_.kernels;
  backend.exact = options_.exact;
  backend.overlap_launches = options_.overlap_launches;
  backend.tuning_cache = options_.tuning_cache;
  backend.warn = [](const std::string& message) { spdlog::warn("{}", message); };
  backend.on_part = [this] { progress_watchdog_.MovesOn(); };
  COPPICE_ASSIGN_OR_RETURN(backend_, kernels::MakeBackend(backend));
  LoadOptions load;
  load.dir = options_.dir;
  load.target = options_.target;
  load.dtype = options_.dtype;
  load.weight_dtype = options_.weight_dtype;
  load.kv_dtype = options_.kv_dtype;
  load.states_for = options_.states_for;
  load.max_rows = options_.max_rows;
  load.kv_bytes = options_.kv_bytes;
  load.gpu_memory = options_.gpu_memory;
  load.on_layer = [this] { progress_watchdog_.MovesOn(); };
  double last_log_s = begin_s;
  load.progress = [&](double fraction) {
    if (options_.on_progress) options_.on_progress();
    if (clock.NowSeconds() - last_log_s < 1) return;
    last_log_s = clock.NowSeconds();
    spdlog::info("loading {}: {:.0f} %", options_.dir, fraction * 100);
  };
  COPPICE_ASSIGN_OR_RETURN(TransformerParts parts,
                           LoadTransformer(load, backend_.get(), communicator));
  kv_layout_ = LayoutOf(parts);
  const auto block_bytes = static_cast<int64_t>(parts.kv_page_bytes(kv_layout_));
  COPPICE_ASSIGN_OR_RETURN(const int64_t kv_bytes, KvBytes(parts));
  COPPICE_ASSIGN_OR_RETURN(const int64_t blocks,
                           AgreeOnBlocks(kv_bytes / block_bytes, communicator));
  if (const int64_t least = kLeastBlocks * kv_layout_.groups(); blocks < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--kv_bytes: ", kv_bytes, " bytes", options_.kv_bytes > 0 ? "" : ", all that is free,",
        " are ", blocks, " KV ", kv_layout_.windows.empty() ? "blocks" : "pages", " of ",
        block_bytes, " bytes; at least ", least, " are needed"));
  }
  COPPICE_ASSIGN_OR_RETURN(const auto sizes, SumOverRanks(SizesOf(parts), communicator));
  reads_ = std::make_unique<ReadCounter>(sizes);
  COPPICE_ASSIGN_OR_RETURN(pool_, backend_->MakeKvPool(parts.kv_shape(blocks, kv_layout_)));
  // Blocks cost the host some bytes; what sequences share is pages.
  const int64_t managed = std::min<int64_t>(
      blocks * kv_layout_.blocks_per_page(parts.config.max_positions), INT32_MAX / kBlockSize);
  blocks_ = std::make_unique<BlockManager>(
      BlockManagerOptions{.num_blocks = managed,
                          .scratch_blocks = options_.scratch_blocks,
                          .windows = kv_layout_.windows,
                          .num_pages = kv_layout_.windows.empty() ? 0 : blocks});
  page_map_ = std::make_unique<PageMap>(kv_layout_.windows, managed, blocks);
  COPPICE_ASSIGN_OR_RETURN(transformer_, Transformer::Create(std::move(parts), backend_.get(),
                                                             pool_.get(), communicator->size()));
  COPPICE_RETURN_IF_ERROR(backend_->Prepare(transformer_.get(), options_.on_progress));
  COPPICE_RETURN_IF_ERROR(communicator->Barrier());
  LogReady(clock.NowSeconds() - begin_s, PoolTokens(kv_layout_, blocks - 1));
  return absl::OkStatus();
}

void ModelRunner::LogReady(double seconds, const std::string& pool_tokens) const {
  const TransformerParts& parts = transformer_->parts();
  spdlog::info(
      "{} ready in {:.2f} s: {:.1f} MB of weights ({}), KV pool of {:.1f} MB ({}{}) for {}, {}",
      options_.dir, seconds, (parts.weights.bytes + parts.fusion.bytes) / 1e6, parts.weight_types,
      pool_->bytes / 1e6, kernels::DTypeName(pool_->shape.dtype),
      parts.fusion.empty()
          ? ""
          : absl::StrCat(", states of ", parts.fusion.columns(), " for ", parts.fusion.draft),
      pool_tokens, backend_->description());
}

// A slot has one state, so where the layers have slots of their own there can be none.
KvLayout ModelRunner::LayoutOf(const TransformerParts& parts) const {
  const bool states = parts.keeps_states;
  if (states && !KvLayoutOf(parts.config, options_.free_windows).windows.empty()) {
    spdlog::info("{}: keeps states for a draft, so layers with windows keep K and V of all tokens",
                 options_.dir);
  }
  return KvLayoutOf(parts.config, options_.free_windows && !states);
}

// The requested size, or one that fits.
absl::StatusOr<int64_t> ModelRunner::KvBytes(const TransformerParts& parts) const {
  if (options_.kv_bytes > 0) return options_.kv_bytes;
  COPPICE_ASSIGN_OR_RETURN(const kernels::MemoryFacts memory, backend_->Memory());
  return DefaultKvBytes(parts.memory, ShareOf(memory, options_.gpu_memory, parts.memory.weights));
}

StepBuilder ModelRunner::NewStep() {
  blocks_->EndRound();
  return StepBuilder(blocks_.get(), vocab_size(),
                     config().takes_states() ? config().hidden_size : 0);
}

absl::Status ModelRunner::Submit(StepBuilder step) {
  StepPlan plan = step.Take();
  plan.commits = std::exchange(commits_, {});
  plan.step = step_ + 1;
  return Start(std::move(plan));
}

PlanLimits ModelRunner::Limits(int needs_before) const {
  PlanLimits limits{max_rows(), vocab_size(), config().max_positions, pool_->shape.blocks,
                    needs_before};
  limits.state_columns = config().takes_states() ? config().hidden_size : 0;
  if (page_map_->groups() == 0) return limits;
  limits.blocks = page_map_->blocks();
  limits.groups = page_map_->groups();
  limits.pages = pool_->shape.blocks;
  return limits;
}

// Runs the same on every rank.
absl::Status ModelRunner::Start(StepPlan plan) {
  const PlanLimits limits = Limits(static_cast<int>(plan_.needs.size()));
  if (plan.step != step_ + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("plan ", plan.step, " after step ", step_, "; the replica must end"));
  }
  COPPICE_RETURN_IF_ERROR(CheckPlan(plan, limits));
  COPPICE_RETURN_IF_ERROR(page_map_->Apply(&plan));
  ++step_;
  StepPlan& held = plan.fetch.empty() ? plan_ : fetch_;
  held = std::move(plan);
  if (followers_ != nullptr) COPPICE_RETURN_IF_ERROR(followers_->Send(held));
  COPPICE_RETURN_IF_ERROR(backend_->Submit(held, transformer_.get()));
  reads_->Add(held);  // while a device computes
  return absl::OkStatus();
}

absl::Status ModelRunner::SubmitForests(ForestPlan plan) {
  COPPICE_CHECK(followers_ == nullptr);
  plan_ = StepPlan();  // its rows are no longer valid
  for (StepPlan& level : plan.levels) {
    level.step = step_ + 1;
    COPPICE_RETURN_IF_ERROR(CheckPlan(level, Limits(/*needs_before=*/0)));
    COPPICE_RETURN_IF_ERROR(page_map_->Apply(&level));
    ++step_;
  }
  forests_ = std::move(plan);
  COPPICE_RETURN_IF_ERROR(backend_->SubmitForests(forests_, transformer_.get()));
  for (const StepPlan& level : forests_.levels) reads_->Add(level);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GrownForest>> ModelRunner::WaitForests() {
  auto grown = backend_->WaitForests();
  progress_watchdog_.Stepped();
  return grown;
}

void ModelRunner::WaitForHead() {
  while (!backend_->HeadReached()) sched_yield();
}

absl::StatusOr<const kernels::StepRows*> ModelRunner::Wait() {
  COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, backend_->Wait());
  COPPICE_ASSIGN_OR_RETURN(rows, FetchIncomplete(rows));
  progress_watchdog_.Stepped();
  return rows;
}

// Replaces incomplete candidate lists by whole rows, all in one follow-up plan.
absl::StatusOr<const kernels::StepRows*> ModelRunner::FetchIncomplete(
    const kernels::StepRows* rows) {
  if (rows == nullptr) return rows;
  StepPlan follow_up;
  for (size_t i = 0; i < plan_.needs.size(); ++i) {
    const RowNeed& need = plan_.needs[i];
    const CandidateRow* listed = rows->Listed(static_cast<int>(i));
    if (listed == nullptr) continue;
    const auto bias =
        absl::MakeConstSpan(plan_.bias).subspan(need.bias_begin, need.bias_end - need.bias_begin);
    if (!sampling::IsComplete(need, *listed, bias))
      follow_up.fetch.push_back(static_cast<int32_t>(i));
  }
  if (follow_up.fetch.empty()) return rows;
  follow_up.step = step_ + 1;
  COPPICE_RETURN_IF_ERROR(Start(std::move(follow_up)));
  return backend_->Wait();
}

absl::Status ModelRunner::ReadStates(absl::Span<const int32_t> slots, uint16_t* out) {
  COPPICE_CHECK(state_columns() > 0);
  std::vector<int32_t> now(slots.begin(), slots.end());
  absl::flat_hash_map<int32_t, int32_t> source;
  for (const KvCopy& copy : commits_) source[copy.destination] = copy.source;
  for (int32_t& slot : now) {
    const auto found = source.find(slot);
    if (found != source.end()) slot = found->second;
  }
  return backend_->ReadStates(*pool_, now, out);
}

absl::Status ModelRunner::Follow(StepPlan plan) {
  COPPICE_RETURN_IF_ERROR(Start(std::move(plan)));
  COPPICE_RETURN_IF_ERROR(backend_->Wait().status());
  progress_watchdog_.Stepped();
  return absl::OkStatus();
}

}  // namespace coppice::model
