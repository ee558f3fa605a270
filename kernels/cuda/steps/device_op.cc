#include "kernels/cuda/steps/device_op.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/runtime/device_error.h"

namespace coppice::kernels::cuda {
namespace {

// The error of the last launch, if it failed. layer: -1 = of none.
absl::Status Launched(absl::string_view kernel, int layer = -1) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string of_layer = layer < 0 ? "" : absl::StrCat(" of layer ", layer);
  return CudaStatus(error, "kernel launch", absl::StrCat(kernel, of_layer));
}

// The collectives of an op over the ranks, else nullptr.
DeviceCollectives* CollectivesOf(const DeviceOp& op) {
  if (const auto* sum = std::get_if<AllReduceOp>(&op)) return sum->collectives;
  if (const auto* sum = std::get_if<AllReduceNormOp>(&op)) return sum->collectives;
  return nullptr;
}

class Launcher {
 public:
  Launcher(const OpList& list, MatrixProducts* products, DeviceStream* stream)
      : step_(list.step),
        work_(list.work),
        lists_(list.lists),
        levels_(list.levels),
        products_(products),
        device_stream_(stream),
        stream_(stream->get()) {}

  absl::Status operator()(const CommitOp& op) const {
    CommitKv(step_, op.pool, op.states, stream_);
    return Launched("commit of KV");
  }
  absl::Status operator()(const EmbedArgs& args) const {
    Embed(step_, args, stream_);
    return Launched("embedding");
  }
  absl::Status operator()(const PositionArgs& args) const {
    AddPositions(step_, args, stream_);
    return Launched("learned positions");
  }
  absl::Status operator()(const AddNormArgs& args) const {
    AddNorm(args, stream_);
    return Launched("norm");
  }
  absl::Status operator()(const MatMulArgs& args) const { return products_->Enqueue(args); }
  absl::Status operator()(const RopeOp& op) const {
    RopeAndStoreKv(step_.of_group(op.group), op.args, op.pool, stream_);
    return Launched("rotary positions", op.layer);
  }
  absl::Status operator()(const AttentionOp& op) const {
    const StepView step = step_.of_group(op.group);
    if (op.tiled) {
      const WorkView work = work_.of_group(op.group);
      TiledAttention(step, op.args, work, op.pool, stream_,
                     op.wide ? kTileClasses - 1 : kTileClasses);
      if (op.wide) {
        COPPICE_RETURN_IF_ERROR(
            CudaStatus(AttendWide(step, op.args, work, op.pool, stream_), "cuTensorMapEncodeTiled",
                       absl::StrCat("the KV pool in the attention of layer ", op.layer)));
      }
    } else {
      Attention(step, op.args, op.pool, stream_);
    }
    return Launched("attention", op.layer);
  }
  absl::Status operator()(const ActivateArgs& args) const {
    Activate(args, stream_);
    return Launched("activation");
  }
  absl::Status operator()(const ExpertsArgs& args) const {
    ScoreExperts(step_, args, stream_);
    COPPICE_RETURN_IF_ERROR(Launched("scores of experts"));
    ChooseExperts(step_, args, stream_);
    COPPICE_RETURN_IF_ERROR(Launched("choice of experts"));
    ListExperts(step_, args, stream_);
    COPPICE_RETURN_IF_ERROR(Launched("list of experts"));
    EnterExperts(args, stream_);
    COPPICE_RETURN_IF_ERROR(Launched("gate and up of experts"));
    Activate(ActivationOf(args), stream_);
    COPPICE_RETURN_IF_ERROR(Launched("activation of experts"));
    LeaveExperts(args, stream_);
    COPPICE_RETURN_IF_ERROR(Launched("down of experts"));
    AddShares(step_, args, stream_);
    return Launched("sum of experts");
  }
  absl::Status operator()(const SoftCapArgs& args) const {
    SoftCap(args, stream_);
    return Launched("soft cap");
  }
  absl::Status operator()(const ScatterArgs& args) const {
    Scatter(args, stream_);
    return Launched("scatter of logits");
  }
  absl::Status operator()(const GatherArgs& args) const {
    GatherRows(step_, args, stream_);
    return Launched("gather of rows");
  }
  absl::Status operator()(const StoreStatesArgs& args) const {
    StoreStates(step_, args, stream_);
    return Launched("storing of states");
  }
  absl::Status operator()(const LoadStatesArgs& args) const {
    LoadStates(step_, args, stream_);
    return Launched("loading of states");
  }
  absl::Status operator()(const PutStatesArgs& args) const {
    PutStates(step_, args, stream_);
    return Launched("putting of states");
  }
  absl::Status operator()(const NormPairArgs& args) const {
    NormPair(args, stream_);
    return Launched("norm of a pair");
  }
  absl::Status operator()(const AllReduceOp& op) const {
    return op.collectives->AllReduceSum(op.values, op.count, device_stream_);
  }
  absl::Status operator()(const AllReduceNormOp& op) const {
    return op.collectives->AllReduceSumAndNorm(op.norm, device_stream_);
  }
  absl::Status operator()(const SelectOp& op) const {
    if (lists_.list_room == 0) return absl::OkStatus();
    SumRows(lists_, op.rows, stream_);
    COPPICE_RETURN_IF_ERROR(Launched("sums of logits"));
    ListPieces(lists_, op.rows, stream_);
    COPPICE_RETURN_IF_ERROR(Launched("candidate lists of pieces"));
    MergePieces(lists_, op.rows, stream_);
    return Launched("merge of candidate lists");
  }
  absl::Status operator()(const PlaceLevelsOp&) const {
    PlaceLevels(levels_, step_, work_, stream_);
    return Launched("placement of levels");
  }
  absl::Status operator()(const ChooseLevelsOp&) const {
    ChooseLevels(levels_, lists_, stream_);
    return Launched("choice of levels");
  }

 private:
  const StepView& step_;
  const WorkView& work_;
  const ListsView& lists_;
  const LevelsView& levels_;
  MatrixProducts* const products_;
  DeviceStream* const device_stream_;
  const cudaStream_t stream_;
};

}  // namespace

absl::Status LaunchOps(const OpList& list, absl::Span<const DeviceOp> ops, MatrixProducts* products,
                       DeviceStream* stream) {
  const Launcher launcher(list, products, stream);
  for (const DeviceOp& op : ops) COPPICE_RETURN_IF_ERROR(std::visit(launcher, op));
  return absl::OkStatus();
}

bool CanCapture(absl::Span<const DeviceOp> ops) {
  return std::all_of(ops.begin(), ops.end(), [](const DeviceOp& op) {
    DeviceCollectives* const collectives = CollectivesOf(op);
    return collectives == nullptr || collectives->only_enqueues();
  });
}

bool HasSums(absl::Span<const DeviceOp> ops) {
  return std::any_of(ops.begin(), ops.end(),
                     [](const DeviceOp& op) { return CollectivesOf(op) != nullptr; });
}

int64_t BytesBetweenDevices(absl::Span<const DeviceOp> ops) {
  int64_t floats = 0;
  for (const DeviceOp& op : ops) {
    const DeviceCollectives* const collectives = CollectivesOf(op);
    if (collectives == nullptr || collectives->through_host()) continue;
    if (const auto* sum = std::get_if<AllReduceOp>(&op)) floats += sum->count;
    if (const auto* sum = std::get_if<AllReduceNormOp>(&op))
      floats += sum->norm.rows * sum->norm.columns;
  }
  return floats * static_cast<int64_t>(sizeof(float));
}

absl::Status FailureOfRanks(absl::Span<const DeviceOp> ops) {
  for (const DeviceOp& op : ops) {
    DeviceCollectives* const collectives = CollectivesOf(op);
    if (collectives != nullptr) return collectives->Failure();
  }
  return absl::OkStatus();
}

int64_t CountLaunches(const OpList& list) {
  const auto classes =
      kTileClasses - std::count(std::begin(list.work.blocks), std::end(list.work.blocks), 0);
  const int64_t of_lists =
      list.lists.list_room == 0 ? 0 : 2 + static_cast<int64_t>(list.lists.sum_room > 0);
  int64_t launches = 0;
  for (const DeviceOp& op : list.ops) {
    const auto* product = std::get_if<MatMulArgs>(&op);
    const auto* attention = std::get_if<AttentionOp>(&op);
    if (std::holds_alternative<SelectOp>(op)) {
      launches += of_lists;
    } else if (std::holds_alternative<ExpertsArgs>(op)) {
      launches += kExpertLaunches;
    } else if (product != nullptr) {
      launches += 1 + (product->bias != nullptr) + (product->gated != nullptr);
    } else {
      launches += attention != nullptr && attention->tiled ? classes : 1;
    }
  }
  return launches;
}

}  // namespace coppice::kernels::cuda
