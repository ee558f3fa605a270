#include "lab/bench/model/timed_runner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/status.h"
#include "sampling/rng.h"

namespace coppice::bench {
namespace {

constexpr uint64_t kCommonTokens = uint64_t{1} << 40;  // numbers that next_token_ never has

}  // namespace

absl::StatusOr<std::unique_ptr<TimedRunner>> TimedRunner::Load(const RunnerChoice& choice) {
  std::unique_ptr<TimedRunner> timed(new TimedRunner(choice.threads));
  model::ModelRunnerOptions options;
  options.dir = choice.dir;
  const bool quantised = choice.type == "int8" || choice.type == "int4";
  options.dtype = quantised ? "bf16" : choice.type;
  if (quantised) options.weight_dtype = choice.type;
  options.kernels = choice.kernels;
  options.threads = choice.threads;
  options.states_for = choice.states_for;
  // Bytes of a token are not known yet. The pool commits memory as blocks are used.
  options.kv_bytes = 0;
  ForgetPeak();
  const auto begin = std::chrono::steady_clock::now();
  COPPICE_ASSIGN_OR_RETURN(timed->runner_, model::ModelRunner::Load(options, timed->single_.get()));
  timed->load_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  timed->memory_ = ReadResidentMemory();
  const int64_t has = (timed->runner_->blocks()->counts().total - 1) * kBlockSize;
  if (has < choice.kv_tokens) {
    return absl::ResourceExhaustedError(
        absl::StrCat(choice.dir, ": the KV pool holds ", has, " tokens, ", choice.kv_tokens,
                     " are needed: take fewer rows or a shorter context"));
  }
  return timed;
}

TimedRunner::~TimedRunner() = default;

absl::StatusOr<TimedRunner::Context> TimedRunner::Open(int tokens, int chunk, int common) {
  std::vector<TokenId> prompt;
  for (int i = 0; i <= tokens; ++i) {
    const uint64_t number = i < common ? kCommonTokens + i : ++next_token_;
    prompt.push_back(static_cast<TokenId>(sampling::Finalize(number) % runner_->vocab_size()));
  }
  Context context;
  int cached = 0;
  context.sequence = runner_->blocks()->Open(prompt, &cached);
  const absl::Span<const TokenId> all(prompt);
  for (int begin = cached; begin < tokens; begin += chunk) {
    const auto part = all.subspan(begin, std::min(chunk, tokens - begin));
    model::StepBuilder step = runner_->NewStep();
    COPPICE_ASSIGN_OR_RETURN(const auto slots,
                             runner_->blocks()->AppendPrefix(context.sequence, part));
    step.AddPrefixRows(context.sequence, part, slots);
    COPPICE_RETURN_IF_ERROR(runner_->Submit(std::move(step)));
    COPPICE_RETURN_IF_ERROR(runner_->Wait().status());
  }
  return context;
}

absl::Status TimedRunner::Grow(int nodes, int beams, Context* context) {
  for (int i = 0; i < nodes; ++i) {
    // Node i is the (i / beams)-th of beam i % beams.
    const int place = i / beams, beam = i % beams;
    const model::KvNode parent =
        place == 0 ? model::kPrefixEnd : context->nodes[(place - 1) / 2 * beams + beam];
    const auto token = static_cast<TokenId>(i % runner_->vocab_size());
    COPPICE_ASSIGN_OR_RETURN(const model::KvNode node,
                             runner_->blocks()->AddNode(context->sequence, parent, token));
    context->nodes.push_back(node);
    context->tokens.push_back(token);
  }
  return absl::OkStatus();
}

absl::Status TimedRunner::Pass(const std::vector<Context>& contexts) {
  model::StepBuilder step = runner_->NewStep();
  for (const Context& context : contexts) {
    for (size_t i = 0; i < context.nodes.size(); ++i)
      step.AddNodeRow(context.sequence, context.nodes[i], context.tokens[i], RowNeed{});
  }
  COPPICE_RETURN_IF_ERROR(runner_->Submit(std::move(step)));
  return runner_->Wait().status();
}

void TimedRunner::Close(const Context& context) {
  runner_->blocks()->Close(context.sequence);
  runner_->blocks()->EndRound();
}

}  // namespace coppice::bench
