// What a pass enqueues, as data: each op with all arguments of its launch. A step's ops are
// recorded first and launched afterwards, one by one or by a graph; two equal lists launch the
// same. No op holds data of one plan. Thread-compatible.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/collectives/device_collectives.h"
#include "kernels/cuda/ops/candidate_lists.h"
#include "kernels/cuda/ops/draft_levels.h"
#include "kernels/cuda/ops/experts.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

struct CommitOp {
  DevicePool pool;
  DeviceStates states;

  bool operator==(const CommitOp&) const = default;
};

// layer: of the model; that of args is the layer of the pool. group: whose slots it takes.
struct RopeOp {
  RopeArgs args;
  DevicePool pool;
  int32_t layer = 0, group = 0;

  bool operator==(const RopeOp&) const = default;
};

struct AttentionOp {
  AttentionArgs args;
  DevicePool pool;
  int32_t layer = 0, group = 0;
  bool tiled = false;
  bool wide = false;  // with tiled: AttendWide runs the last class

  bool operator==(const AttentionOp&) const = default;
};

struct AllReduceOp {
  DeviceCollectives* collectives = nullptr;
  float* values = nullptr;
  int64_t count = 0;

  bool operator==(const AllReduceOp&) const = default;
};

// A sum over the ranks of norm.addend, and the norm that it goes into.
struct AllReduceNormOp {
  DeviceCollectives* collectives = nullptr;
  AddNormArgs norm;

  bool operator==(const AllReduceNormOp&) const = default;
};

// The candidate lists that the step asks for: nothing without room for one.
struct SelectOp {
  LogitRows rows;

  bool operator==(const SelectOp&) const = default;
};

// The levels that the list's view names.
struct PlaceLevelsOp {
  bool operator==(const PlaceLevelsOp&) const = default;
};
struct ChooseLevelsOp {
  bool operator==(const ChooseLevelsOp&) const = default;
};

using DeviceOp =
    std::variant<CommitOp, EmbedArgs, PositionArgs, AddNormArgs, MatMulArgs, RopeOp, AttentionOp,
                 ActivateArgs, ExpertsArgs, SoftCapArgs, ScatterArgs, GatherArgs, StoreStatesArgs,
                 LoadStatesArgs, PutStatesArgs, NormPairArgs, AllReduceOp, AllReduceNormOp,
                 SelectOp, PlaceLevelsOp, ChooseLevelsOp>;

// Ops that are enqueued together, and the views of the step for their launches. Equal lists are
// equal launches: the graph of one also serves the other.
struct OpList {
  StepView step;  // compared first: lists of other sizes are told apart here
  WorkView work;
  ListsView lists;  // for a head
  std::vector<DeviceOp> ops;
  LevelsView levels = {};  // for forests that the device grows

  bool operator==(const OpList&) const = default;
};

// Enqueues some of the list's ops in order, most with one launch or product. Stops at the first that
// fails, and names it.
absl::Status LaunchOps(const OpList& list, absl::Span<const DeviceOp> ops, MatrixProducts* products,
                       DeviceStream* stream);

// Whether enqueuing them never waits, so that a graph may hold them.
bool CanCapture(absl::Span<const DeviceOp> ops);

// Whether one of them is a sum over the ranks.
bool HasSums(absl::Span<const DeviceOp> ops);

// Data of this rank in the sums over the ranks that do not pass through the host.
int64_t BytesBetweenDevices(absl::Span<const DeviceOp> ops);

// An error of the collectives among the ops.
absl::Status FailureOfRanks(absl::Span<const DeviceOp> ops);

// The most kernels and products that this enqueues: a product may have separate kernels for its
// bias and for SwiGLU.
int64_t CountLaunches(const OpList& list);

}  // namespace coppice::kernels::cuda
