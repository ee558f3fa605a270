#include "lab/perplexity/text_score.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "model/load_transformer.h"
#include "model/transformer.h"
#include "plan/step_plan.h"
#include "sampling/deterministic_math.h"

namespace coppice::perplexity {
namespace {

// The whole window as the prefix of one sequence, in blocks 1, 2, ...; every row is needed.
StepPlan PlanOf(const Window& window) {
  const int count = static_cast<int>(window.size());
  const int blocks = (count + kBlockSize - 1) / kBlockSize;
  StepPlan plan;
  plan.token = window;
  plan.segments = {{0, count, count}};
  for (int block = 1; block <= blocks; ++block) plan.table.push_back(block);
  plan.table_begin = {0, blocks};
  for (int row = 0; row < count; ++row) {
    plan.position.push_back(row);
    plan.slot.push_back(kBlockSize + row);
    plan.chain_begin.push_back(0);
    RowNeed need;
    need.row = row;
    plan.needs.push_back(need);
  }
  return plan;
}

double NegativeLogLikelihood(absl::Span<const float> logits, TokenId token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += sampling::Exp(logit - largest);
  return sampling::Log(sum) + largest - logits[token];
}

}  // namespace

double TextScore::perplexity() const { return sampling::Exp(mean_nll); }

absl::StatusOr<TextScore> ScoreTexts(const ModelChoice& choice,
                                     const std::vector<Window>& windows) {
  size_t longest = 0;
  for (const Window& window : windows) longest = std::max(longest, window.size());
  const auto communicator = comm::MakeSingleCommunicator();
  ThreadTeam threads(choice.threads);
  kernels::BackendOptions options;
  options.threads = &threads;
  options.communicator = communicator.get();
  options.cpu_kernels = choice.kernels;
  COPPICE_ASSIGN_OR_RETURN(const auto backend, kernels::MakeBackend(options));
  model::LoadOptions load;
  load.dir = choice.dir;
  const bool quantised = choice.type == "int8" || choice.type == "int4";
  (quantised ? load.weight_dtype : load.dtype) = choice.type;
  load.kv_dtype = choice.kv_type;
  load.max_rows = static_cast<int>(longest);
  COPPICE_ASSIGN_OR_RETURN(model::TransformerParts parts,
                           LoadTransformer(load, backend.get(), communicator.get()));
  TextScore score;
  score.weight_bytes = parts.weights.bytes;
  score.kv_type = kernels::DTypeName(parts.kv_dtype);
  score.backend = backend->description();
  const auto blocks = static_cast<int64_t>(longest / kBlockSize + 2);
  COPPICE_ASSIGN_OR_RETURN(const auto pool, backend->MakeKvPool(parts.kv_shape(blocks)));
  COPPICE_ASSIGN_OR_RETURN(
      const auto decoder,
      model::Transformer::Create(std::move(parts), backend.get(), pool.get(), /*ranks=*/1));
  for (const Window& window : windows) {
    const StepPlan plan = PlanOf(window);
    COPPICE_RETURN_IF_ERROR(backend->Submit(plan, decoder.get()));
    COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, backend->Wait());
    for (size_t next = 1; next < window.size(); ++next) {
      const absl::Span<const float> logits = rows->Whole(static_cast<int>(next) - 1);
      score.mean_nll += NegativeLogLikelihood(logits, window[next]);
      ++score.tokens;
    }
  }
  score.mean_nll /= static_cast<double>(score.tokens);
  return score;
}

}  // namespace coppice::perplexity
