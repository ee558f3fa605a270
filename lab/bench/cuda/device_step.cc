#include "lab/bench/cuda/device_step.h"

#include <array>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/products/product_tuner.h"
#include "kernels/cuda/runtime/device_graph.h"

namespace coppice::bench {
namespace {

using kernels::cuda::DeviceOp;
using kernels::cuda::OpList;

// By the alternatives of DeviceOp.
constexpr std::array kNames = {
    "commit",        "embedding",        "learned positions", "norm",
    "product",       "rotary positions", "attention",         "activation",
    "experts",       "soft cap",         "scatter",           "gather",
    "states stored", "states loaded",    "states put",        "pair of norms",
    "sum of ranks",  "sum and norm",     "candidate lists",   "place levels",
    "choose levels"};
static_assert(kNames.size() == std::variant_size_v<DeviceOp>);

std::string NameOf(const DeviceOp& op) {
  const char* const name = kNames[op.index()];
  const auto* const product = std::get_if<kernels::cuda::MatMulArgs>(&op);
  if (product == nullptr) return name;
  return absl::StrCat(name, " ", product->outputs, " x ", product->inputs);
}

double WeightBytes(const DeviceOp& op) {
  const auto* const product = std::get_if<kernels::cuda::MatMulArgs>(&op);
  if (product == nullptr) return 0;
  return static_cast<double>(product->outputs) * static_cast<double>(product->inputs) * kValueBytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStep>> DeviceStep::Create(const StepPlan* plan,
                                                               LlamaModel* llama,
                                                               const std::string& tuning_cache,
                                                               DeviceTimer* timer) {
  std::unique_ptr<DeviceStep> step(new DeviceStep(plan, timer));
  COPPICE_ASSIGN_OR_RETURN(step->products_,
                           kernels::cuda::MatrixProducts::Create(timer->stream(), /*exact=*/false,
                                                                 timer->facts().has_clusters));
  if (!tuning_cache.empty()) {
    COPPICE_RETURN_IF_ERROR(
        TuneProducts({kernels::cuda::ListProducts(llama->decoder()), tuning_cache, {}},
                     timer->facts(), timer->stream(), step->products_.get())
            .status());
  }
  COPPICE_RETURN_IF_ERROR(step->Record(llama));
  return step;
}

absl::Status DeviceStep::Record(LlamaModel* llama) {
  const kernels::cuda::StepShape shape =
      kernels::cuda::PaddedShape(plan_->rows(), static_cast<int64_t>(plan_->needs.size()));
  ops_.Begin(*plan_, shape);
  llama->decoder()->Body(&ops_);
  std::vector<DeviceOp> body = ops_.Take();
  llama->decoder()->Head(&ops_);
  std::vector<DeviceOp> head = ops_.Take();
  const kernels::cuda::LogitRows& rows = *ops_.selection();
  list_plan_ = kernels::cuda::MakeListPlan(*plan_, rows, /*always=*/true);
  COPPICE_RETURN_IF_ERROR(lists_.MakeRoom(&list_plan_, rows));
  COPPICE_RETURN_IF_ERROR(upload_.Upload(*plan_, shape, ops_.work(), &lists_, timer_->stream()));
  COPPICE_RETURN_IF_ERROR(timer_->stream()->Synchronize("the plan of a step"));
  body_ = {upload_.step(), upload_.work(), {}, std::move(body)};
  head_ = {upload_.step(), {}, upload_.lists(), std::move(head)};
  return absl::OkStatus();
}

int64_t DeviceStep::launches() const { return CountLaunches(body_) + CountLaunches(head_); }

absl::StatusOr<Timing> DeviceStep::Time() {
  std::vector<kernels::cuda::DeviceGraph> graphs;
  for (const OpList* list : {&body_, &head_}) {
    const auto launch = [&] {
      return LaunchOps(*list, list->ops, products_.get(), timer_->stream());
    };
    COPPICE_RETURN_IF_ERROR(launch());  // loads kernels
    COPPICE_RETURN_IF_ERROR(timer_->stream()->Synchronize("a step"));
    COPPICE_ASSIGN_OR_RETURN(
        kernels::cuda::DeviceGraph graph,
        kernels::cuda::DeviceGraph::Capture(timer_->stream(), "a step", launch));
    graphs.push_back(std::move(graph));
  }
  return timer_->Time([&]() -> absl::Status {
    for (const kernels::cuda::DeviceGraph& graph : graphs)
      COPPICE_RETURN_IF_ERROR(graph.Launch(timer_->stream(), "a step"));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<DeviceStep::OfKind>> DeviceStep::Profile() {
  std::vector<OfKind> profile;
  for (const OpList* list : {&body_, &head_}) {
    std::map<std::string, std::vector<DeviceOp>> kinds;
    for (const DeviceOp& op : list->ops) kinds[NameOf(op)].push_back(op);
    for (const auto& [name, ops] : kinds) {
      COPPICE_ASSIGN_OR_RETURN(const Timing timing, timer_->Time([&, &ops = ops] {
        return LaunchOps(*list, ops, products_.get(), timer_->stream());
      }));
      OfKind& of_kind = profile.emplace_back();
      of_kind.name = absl::StrCat(name, list == &head_ ? " of the head" : "");
      of_kind.ops = static_cast<int64_t>(ops.size());
      for (const DeviceOp& op : ops) of_kind.bytes += WeightBytes(op);
      of_kind.timing = timing;
    }
  }
  return profile;
}

}  // namespace coppice::bench
