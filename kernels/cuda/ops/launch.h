// The kernels of the CUDA backend as host functions: each enqueues one launch on a stream and
// returns. Arguments are checked by the caller (cuda_ops.cc). No function waits, allocates or reads
// device memory; launch errors are left for cudaGetLastError. Pointers are to device memory.
// Activations (`void*` beside a DType) are f32, bf16 or f16; the residual stream and the logits are
// f32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/device/overlap.h"
#include "kernels/cuda/ops/work_list.h"
#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

// The arrays of a StepPlan that kernels read. What a row sees: plan/step_plan.h. It lies in device
// memory itself, so that a launch that was recorded once serves every plan.
struct DeviceStep {
  // Arrays over the padded rows of the step (row_bucket.h).
  const int32_t* token = nullptr;        // [rows]
  const int32_t* position = nullptr;     // [rows]
  const int32_t* slot = nullptr;         // [rows]
  const int32_t* segment = nullptr;      // [rows] index of the row's segment
  const int32_t* prefix_len = nullptr;   // [rows] tokens of the block table that the row sees
  const int32_t* chain_begin = nullptr;  // [rows + 1]
  // Arrays of the plan, without padding.
  const int32_t* chain = nullptr;        // slots
  const int32_t* table_begin = nullptr;  // [segments + 1]
  const int32_t* table = nullptr;        // block ids
  const int32_t* need_row = nullptr;     // [needs], ascending
  const KvCopy* commits = nullptr;       // [commit_count]
  // Of models that take states (StepPlan): [rows], and rows of bf16.
  const int32_t* state = nullptr;
  const void* states = nullptr;
  int32_t rows = 0, needs = 0, commit_count = 0;
};

// The part of a step that a launch is given. It holds only the sizes that the step is padded to:
// anything that differs between steps of one size is read from device memory when the kernel runs.
struct StepView {
  const DeviceStep* step = nullptr;  // [groups] of layers (KvPlace), which differ in slots alone
  int32_t rows = 0, needs = 0;       // padded numbers

  StepView of_group(int group) const { return {step + group, rows, needs}; }
  bool operator==(const StepView&) const = default;
};

// What the kernels of attention and KV take as head_dim.
inline constexpr int kHeadDimUnit = 8, kMaxHeadDim = 256;

// [layer][K then V][block][kv_head][kBlockSize][head_dim], as KvPoolShape; in kI8 with the scales
// [kBlockSize] behind each [kBlockSize][head_dim].
struct DevicePool {
  void* data = nullptr;
  DType dtype = DType::kBF16;
  int32_t layers = 0, kv_heads = 0, head_dim = 0;
  int64_t blocks = 0;

  bool operator==(const DevicePool&) const = default;
};

// The states of the slots of a pool, [slots][columns] bf16, columns a multiple of kStateUnit; 0: it
// keeps none.
inline constexpr int kStateUnit = 8;
struct DeviceStates {
  void* values = nullptr;
  int32_t columns = 0;

  bool operator==(const DeviceStates&) const = default;
};

void CommitKv(const StepView& step, const DevicePool& pool, const DeviceStates& states,
              cudaStream_t stream);

// The state of row r's slot = bf16(x[r]); after_gather: of the row that has need r.
struct StoreStatesArgs {
  const float* x = nullptr;  // [rows or needs, columns]
  DeviceStates states;
  bool after_gather = false;

  bool operator==(const StoreStatesArgs&) const = default;
};
void StoreStates(const StepView& step, const StoreStatesArgs& args, cudaStream_t stream);

// x[r] = the state that the step gives to row r, or that of the slot before its own in its chain;
// zeros for rows that pad the step.
struct LoadStatesArgs {
  DeviceStates states;
  float* x = nullptr;  // [rows, columns]

  bool operator==(const LoadStatesArgs&) const = default;
};
void LoadStates(const StepView& step, const LoadStatesArgs& args, cudaStream_t stream);

// x[r] = the state that the step gives to row r; rows without one keep theirs.
struct PutStatesArgs {
  void* x = nullptr;  // [rows, columns] of `dtype`
  DType dtype = DType::kBF16;
  int32_t columns = 0;  // a multiple of kStateUnit

  bool operator==(const PutStatesArgs&) const = default;
};
void PutStates(const StepView& step, const PutStatesArgs& args, cudaStream_t stream);

// out[i] = the state of slots[i]. slots [count] in memory of the host, read before this returns; out
// [count][columns] bf16. One launch for each kMostGathered slots.
inline constexpr int kMostGathered = 128;
void GatherStates(const DeviceStates& states, const int32_t* slots, int64_t count, void* out,
                  cudaStream_t stream);

// x[r] = scale times row token[r] - first_row of matrix [matrix_rows, columns] of `dtype`, else
// zeros. dtype may be Q8_0 or Q4_0 (block_matrix.h), with values of `value_dtype`.
struct EmbedArgs {
  const void* matrix = nullptr;
  DType dtype = DType::kBF16;
  int64_t matrix_rows = 0, columns = 0, first_row = 0;
  float scale = 1;
  float* x = nullptr;
  DType value_dtype = DType::kBF16;

  bool operator==(const EmbedArgs&) const = default;
};
void Embed(const StepView& step, const EmbedArgs& args, cudaStream_t stream);

// x[r] += row position[r] + offset of matrix [.., columns]; its type is as above.
struct PositionArgs {
  const void* matrix = nullptr;
  DType dtype = DType::kBF16;
  int64_t columns = 0;
  int32_t offset = 0;
  float* x = nullptr;
  DType value_dtype = DType::kBF16;

  bool operator==(const PositionArgs&) const = default;
};
void AddPositions(const StepView& step, const PositionArgs& args, cudaStream_t stream);

// A Norm (backend.h) of as many values as the gain has.
struct NormArgs {
  const float* gain = nullptr;  // nullptr: the values stay
  const float* bias = nullptr;  // nullptr: none
  NormKind kind = NormKind::kRms;
  float epsilon = 0;

  bool empty() const { return gain == nullptr; }
  bool operator==(const NormArgs&) const = default;
};

// x += scale * addend_norm(addend), unless addend is null; out = norm(x). out may be x.
struct AddNormArgs {
  float* x = nullptr;             // [rows, columns]
  const float* addend = nullptr;  // [rows, columns]
  NormArgs addend_norm;
  float scale = 1;
  NormArgs norm;
  void* out = nullptr;  // [rows, columns] of `dtype`
  DType dtype = DType::kBF16;
  int64_t rows = 0, columns = 0;

  // Whether it is an RMS norm without a bias of x plus the addend itself.
  bool plain() const {
    return addend_norm.empty() && scale == 1 && !norm.empty() && norm.bias == nullptr &&
           norm.kind == NormKind::kRms;
  }
  bool operator==(const AddNormArgs&) const = default;
};
void AddNorm(const AddNormArgs& args, cudaStream_t stream);

// out[r] = the norm of each part's row r, one after the other.
struct NormPairArgs {
  struct Part {
    const float* x = nullptr;  // [rows, columns]
    NormArgs norm;
    int64_t columns = 0;

    bool operator==(const Part&) const = default;
  } first, second;
  void* out = nullptr;  // [rows, the columns of both] of `dtype`
  DType dtype = DType::kBF16;
  int64_t rows = 0;

  bool operator==(const NormPairArgs&) const = default;
};
void NormPair(const NormPairArgs& args, cudaStream_t stream);

// y[r] += bias.
void AddBias(void* y, DType dtype, const float* bias, int64_t rows, int64_t columns,
             cudaStream_t stream);

// Whether the kernels of KV and attention take these types together: f16 only with f16 or codes.
constexpr bool CanStoreKv(DType activations, DType pool) {
  return pool == DType::kI8 || (activations == DType::kF16) == (pool == DType::kF16);
}

// qkv [rows, (q_heads + 2 kv_heads) head_dim] of `dtype`, and bias, unless that is null: the norms
// of q and k heads, then the rotation of their first rotary_dim dims, in place (half-split
// convention); writes K and V to the row's slot. In f16 a q or k that overflows becomes NaN. qkv's
// V stays as it is, without the bias. The bits are those of AddBias and then this without a bias.
struct RopeArgs {
  void* qkv = nullptr;
  const float* bias = nullptr;  // [(q_heads + 2 kv_heads) head_dim] or nullptr
  DType dtype = DType::kBF16;
  int32_t q_heads = 0, layer = 0;
  NormArgs q_norm, k_norm;      // both or none; gains [head_dim]
  bool norms_together = false;  // of all q heads of a row, and of all k heads: gains of all
  int32_t rotary_dim = 0;       // even, at most head_dim; 0: nothing rotates
  const float* cos = nullptr;   // [max_positions, rotary_dim / 2]
  const float* sin = nullptr;

  bool operator==(const RopeArgs&) const = default;
};
void RopeAndStoreKv(const StepView& step, const RopeArgs& args, const DevicePool& pool,
                    cudaStream_t stream);

// out [rows, q_heads head_dim] of `dtype`; sums in f32.
struct AttentionArgs {
  const void* qkv = nullptr;
  void* out = nullptr;
  DType dtype = DType::kBF16;
  int32_t q_heads = 0, layer = 0;
  AttentionRule rule;  // scale > 0

  bool operator==(const AttentionArgs&) const = default;
};
void Attention(const StepView& step, const AttentionArgs& args, const DevicePool& pool,
               cudaStream_t stream);

// A WorkList (work_list.h) of the step; as DeviceStep, in device memory itself.
struct DeviceWork {
  struct OfClass {
    const AttentionItem* items = nullptr;  // ItemsByWorker
    int32_t workers = 0, count = 0;        // count: of items
  };
  OfClass classes[kTileClasses];
  const int32_t* rows = nullptr;  // of items that list them
  const int32_t* chain = nullptr;
  const int32_t* chain_position = nullptr;
  const uint64_t* masks = nullptr;
  float* partials = nullptr;     // [partial_floats]
  uint32_t* counters = nullptr;  // [merges], zero before the first launch; launches leave them zero
};
// The part of DeviceWork that a launch is given: for each class a grid that holds its workers, 0
// when it has none.
struct WorkView {
  const DeviceWork* work = nullptr;  // [groups] of layers, which differ in `chain` alone
  int32_t blocks[kTileClasses] = {};

  WorkView of_group(int group) const {
    WorkView view = *this;
    view.work += group;
    return view;
  }
  bool operator==(const WorkView&) const = default;
};
// The same as Attention, by tensor cores, with K and V read once for the rows of a request, and
// once for all requests whose tables begin with the same blocks (row_tiles.h). The
// bits of a row depend on the work list too. Only for as many classes of the list as TileClasses
// returns; 0: for none. bf16 or f16, the same for activations and pool, or a pool of codes.
// block_shared_bytes: shared memory that a block of the device may have.
int TileClasses(DType activations, const DevicePool& pool, int64_t block_shared_bytes);
// Blocks that are resident on a multiprocessor with this much shared memory: WorkShape::workers is
// this times the number of multiprocessors. More workers also work, but wait for others. wide:
// AttendWide runs the last class.
int TileBlocksPerMultiprocessor(int tile_class, int head_dim, int64_t shared_bytes,
                                bool wide = false);
// classes: only the first this many.
void TiledAttention(const StepView& step, const AttentionArgs& args, const WorkView& work,
                    const DevicePool& pool, cudaStream_t stream, int classes = kTileClasses);
// The last class by instructions that devices of compute capability 9.0 alone have; bit for bit the
// same only in the simulator. Returns why the pool could not be described to the copy engine.
bool CanAttendWide(DType activations, const AttentionRule& rule, const DevicePool& pool,
                   int64_t block_shared_bytes);
cudaError_t AttendWide(const StepView& step, const AttentionArgs& args, const WorkView& work,
                       const DevicePool& pool, cudaStream_t stream);

// Gated: in [rows, 2 columns], gate then up; out [rows, columns] = f(gate) * up. Else in [rows,
// columns]; out = f(in). A value of `in` that is not finite makes the output so.
struct ActivateArgs {
  Activation f = Activation::kSilu;
  bool gated = true;
  const void* in = nullptr;
  void* out = nullptr;
  DType dtype = DType::kBF16;
  int64_t rows = 0, columns = 0;

  bool operator==(const ActivateArgs&) const = default;
};
void Activate(const ActivateArgs& args, cudaStream_t stream);

// x [count] = cap * tanh(x / cap). What is not finite becomes NaN.
struct SoftCapArgs {
  float* x = nullptr;
  int64_t count = 0;
  float cap = 0;

  bool operator==(const SoftCapArgs&) const = default;
};
void SoftCap(const SoftCapArgs& args, cudaStream_t stream);

// wide[r, c] = kept[r, place[c]], or -infinity where place[c] < 0.
struct ScatterArgs {
  const int32_t* place = nullptr;  // [columns]
  const float* kept = nullptr;     // [rows, kept_columns]
  float* wide = nullptr;           // [rows, columns]
  int64_t rows = 0, kept_columns = 0, columns = 0;

  bool operator==(const ScatterArgs&) const = default;
};
void Scatter(const ScatterArgs& args, cudaStream_t stream);

// Row i = row need_row[i], in place, for i ascending. Rows after the last need keep their values.
// values [rows, row_bytes]; row_bytes a multiple of 4. All in one launch.
struct GatherArgs {
  static constexpr int kMost = 2;
  struct Of {
    void* values = nullptr;
    int64_t row_bytes = 0;  // bytes per row; 0: none

    bool operator==(const Of&) const = default;
  } of[kMost];

  bool operator==(const GatherArgs&) const = default;
};
void GatherRows(const StepView& step, const GatherArgs& args, cudaStream_t stream);

}  // namespace coppice::kernels::cuda
