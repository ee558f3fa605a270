#include "lab/bench/cuda/predicted_wide.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/llama_model.h"
#include "lab/bench/cuda/llama_shape.h"
#include "plan/plan_check.h"

namespace coppice::bench {
namespace {

constexpr ModelShape kRecommender = {"1.7B", 28, 2048, 6144, 151936, 16, 8, 128, true};
constexpr int kWidths[] = {64, 128, 256, 512};
constexpr int kContext = 5000;
constexpr int kOwnTokens = 3;  // of a beam, the token of the step among them
constexpr int kAllowed = 64;   // tokens after each path

enum class Sent { kAllowed, kBest, kAll };

// What a beam search needs of every row.
void NeedRanks(Sent sent, int width, StepPlan* plan) {
  for (int row = 0; row < plan->rows(); ++row) {
    RowNeed need;
    need.row = row;
    if (sent == Sent::kAllowed) {
      need.form = RowNeed::Form::kRaw;
      need.raw_top = 1;
      need.raw_sums = true;
      need.bias_begin = static_cast<int32_t>(plan->bias.size());
      for (int i = 0; i < kAllowed; ++i)
        plan->bias.emplace_back((row * 7919 + i * 2003) % kRecommender.vocabulary, 0.0);
      need.bias_end = static_cast<int32_t>(plan->bias.size());
    } else if (sent == Sent::kBest) {
      need.form = RowNeed::Form::kTop;
      need.count = width + 1;
      need.slack = 4e-6;
      need.sums = true;
    }
    plan->needs.push_back(need);
  }
}

}  // namespace

absl::Status PredictWide(const DeviceModel& device, bool details,
                         kernels::cuda::DeviceStream* stream) {
  LlamaOptions options;
  options.shape = kRecommender;
  for (const int width : kWidths) {
    const BenchPlan bench = BeamPlan(width, kContext, kOwnTokens);
    options.max_rows = std::max(options.max_rows, bench.plan.rows());
    options.blocks = std::max(options.blocks, bench.blocks);
  }
  COPPICE_ASSIGN_OR_RETURN(const std::unique_ptr<LlamaModel> llama,
                           LlamaModel::Create(options, stream));
  std::printf(
      "Predicted for %s; nothing is measured.\n"
      "One request of %d tokens, %s, each beam with %d tokens of its own.\n\n"
      "| beams | sent of a row | launches | GEMM ms | attention GB | attention ms | lists ms | "
      "other ms | gaps ms | to host MB | copies ms | step ms |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      device.name.c_str(), kContext, kRecommender.name, kOwnTokens);
  for (const int width : kWidths) {
    for (const auto& [sent, name] :
         {std::pair(Sent::kAllowed, "64 allowed tokens"), std::pair(Sent::kBest, "W+1 best"),
          std::pair(Sent::kAll, "all logits")}) {
      BenchPlan bench = BeamPlan(width, kContext, kOwnTokens);
      NeedRanks(sent, width, &bench.plan);
      COPPICE_RETURN_IF_ERROR(CheckPlan(bench.plan, {width, kRecommender.vocabulary, kMaxPositions,
                                                     bench.blocks, /*needs_before=*/0}));
      COPPICE_ASSIGN_OR_RETURN(const PredictedStep step,
                               PredictStep(bench.plan, device, llama.get()));
      absl::PrintF("| %d | %s | %d | %s | %.3g | %s | %s | %s | %s | %.3g | %s | %s |\n", width,
                   name, step.launches, Text(step.products),
                   static_cast<double>(step.kv_bytes) / 1e9, Text(step.attention), Text(step.lists),
                   Text(step.other), Text(step.gaps), static_cast<double>(step.bytes_down) / 1e6,
                   Text(step.copies), Text(step.total_ms()));
      if (details) PrintKernels(step);
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice::bench
