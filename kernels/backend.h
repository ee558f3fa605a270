// The compute backend: the operations of the decoder over opaque tensors in the memory of one
// device. One implementation per kind of device (cpu/, cuda/); only MakeBackend chooses among them.
//
// The life of a step: Submit uploads the plan and enqueues the ops of a pass. Wait waits for them
// and returns what the decisions need of the rows. Ops are only enqueued: they take no host data
// and wait for nothing. Positions, slots and lists come from the plan. After an op has failed, the
// rest of the step does nothing and Wait returns the error. Thread-compatible: one thread owns a
// backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/thread_team.h"
#include "base/types.h"
#include "comm/communicator.h"
#include "plan/candidate_row.h"
#include "plan/forest_plan.h"
#include "plan/step_plan.h"

namespace coppice::kernels {

// Weights and KV: the first three. KV alone: kI8, with a scale for each vector (KvPoolShape). Weights
// alone: block formats of GGUF (kernels/block_format.h).
enum class DType {
  kF32,
  kBF16,
  kF16,
  kI8,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kIQ4_NL,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};
// Bytes of an element, without scales. Not of block formats.
size_t DTypeSize(DType dtype);
// "F32", "BF16", "F16", "I8" as safetensors spells them, "Q4_K" as GGUF does.
const char* DTypeName(DType dtype);

// Activations in the memory of a backend, row-major. Only the backend that made it reads `data`.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;  // capacity; an op works on the rows of the step
  int64_t columns = 0;

  bool empty() const { return data == nullptr; }
};

// An immutable weight in the backend's own layout: a matrix [rows, columns] (rows = outputs) with
// an optional bias of its outputs, a gain (one row), or a scatter from `columns` values to `rows`
// places.
class Weight {
 public:
  virtual ~Weight() = default;
  int64_t rows = 0;
  int64_t columns = 0;
  DType dtype = DType::kF32;  // of its first rows, where types differ (PackEach)
  size_t bytes = 0;           // memory it holds
};

// A view of a weight matrix in a checkpoint: element (r, c) at data[(r * row_stride + c) *
// DTypeSize(dtype)]. In a block format a row is whole blocks: columns and row_stride are multiples
// of the block's values, and row r begins at data[RowBytes(dtype, r * row_stride)].
struct MatrixSource {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // elements
};

// The place of a layer's K and V in a pool.
struct KvPlace {
  int group = 0;  // whose slots and tables it has (StepPlan::slot_of)
  int layer = 0;  // of the pool
};

// KV pool of one rank: for each layer K and V, [block][kv_head][kBlockSize][head_dim], stored as
// one type. Slot s is place s % kBlockSize of block s / kBlockSize. Block 0 is the sink, which
// is never read. kI8: a vector [head_dim] is its scale times codes, scale = its largest magnitude /
// 127 in f32, code = value / scale rounded to nearest, ties to even; below a scale of 2^-126 all
// are 0; if a value is not finite, the scale is NaN and the codes are 0. The scales [kBlockSize] of
// a head's vectors of a block follow their codes.
// The layers of a model with windows are divided into groups of one size, and a
// block of the pool is a page: K and V of 16 tokens for the layers of one group.
struct KvPoolShape {
  int layers = 0;    // with groups: of one group
  int kv_heads = 0;  // KV heads of this rank
  int head_dim = 0;
  int64_t blocks = 0;  // with groups: pages
  DType dtype = DType::kF32;
  std::vector<KvPlace> places;  // [layers of the model]; empty: all in one group
  // Beside K and V a slot has a hidden state of so many bf16 values, which copies take along; 0:
  // none. Not with groups.
  int state_columns = 0;

  KvPlace place(int layer) const { return places.empty() ? KvPlace{0, layer} : places[layer]; }
};
class KvPool {
 public:
  virtual ~KvPool() = default;
  KvPoolShape shape;
  size_t bytes = 0;
};

// cos and sin per position in the memory of a backend (kernels/rope_table.h). Immutable.
class RopeTable {
 public:
  virtual ~RopeTable() = default;
  int rotary_dim = 0;  // dimensions of a head that rotate, the first; even
  int max_positions = 0;
};

struct RopeConfig {
  int max_positions = 0;
  std::vector<double> frequencies;  // [rotary_dim / 2] radians per position
  double scale = 1.0;               // multiplies cos and sin
};

// A norm of a vector of n values. RMS: x / sqrt(mean(x^2) + epsilon) * gain. Layer: (x - mean(x)) /
// sqrt(variance(x) + epsilon) * gain + bias.
enum class NormKind { kRms, kLayer };
struct Norm {
  const Weight* gain = nullptr;  // [n] with the bias, from PackGain; nullptr: the values stay
  NormKind kind = NormKind::kRms;
  float epsilon = 0;

  bool empty() const { return gain == nullptr; }
};

// What AddNorm adds to the residual stream: scale * norm(values).
struct Addend {
  Tensor values = {};  // f32; empty: nothing is added
  Norm norm = {};
  float scale = 1;

  bool empty() const { return values.empty(); }
};

// What happens to q and k before attention: norms, then rotary positions.
struct HeadSteps {
  // Of each head, with gains [head_dim], or of all heads of the row together. Both or none.
  Norm q_norm, k_norm;
  const RopeTable* rope = nullptr;  // nullptr: nothing rotates
};

// How a layer attends. score = q k * scale; with a cap: cap * tanh(score / cap).
struct AttentionRule {
  float scale = 0;
  float softcap = 0;  // 0: none
  int window = 0;     // a row sees the last `window` positions, its own included; 0: all

  bool operator==(const AttentionRule&) const = default;
};

enum class Activation { kSilu, kGelu, kGeluTanh, kRelu };

// A layer of experts: MLPs of which a row uses those that the router prefers. Its scores are f32.
struct Experts {
  const Weight* router = nullptr;                     // [experts, d]
  absl::Span<const std::unique_ptr<Weight>> gate_up;  // [experts] of [2 f, d]
  absl::Span<const std::unique_ptr<Weight>> down;     // [experts] of [d, f]
  Activation activation = Activation::kSilu;
  int chosen = 0;           // experts of a row
  bool normalised = false;  // the shares of the chosen experts are divided by their sum
};

// The ops of one step, given to a pass. They work on the rows of the plan, and after GatherRows on
// those with needs. Every rank calls the same ops in the same order. A backend may join an op with
// the product just before it: what the input of Activate, and V in qkv, hold afterwards is not
// defined.
class Ops {
 public:
  virtual ~Ops() = default;
  // What the plan has: it may have only commits, or rows without needs.
  virtual bool has_rows() const = 0;
  virtual bool has_needs() const = 0;
  // Does the plan's commits: copies K and V of all layers of the pool from slot to slot.
  virtual void CommitKv(KvPool* pool) = 0;
  // x[r] = scale times row token[r] - first_row of the matrix, or zeros when the matrix does not
  // hold that row (vocabulary-parallel embedding). A tied head shares the matrix. x [rows,
  // w.columns].
  virtual void Embed(const Weight& w, int64_t first_row, float scale, Tensor x) = 0;
  // x[r] += row position[r] + offset of the matrix (learned positions). x [rows, w.columns].
  virtual void AddPositions(const Weight& w, int offset, Tensor x) = 0;
  // x += addend, unless it is empty; out = norm(x). All [rows, n]; out may be x. Another `out` is
  // for one MatMul; its contents are undefined afterwards.
  virtual void AddNorm(Tensor x, const Addend& addend, const Norm& norm, Tensor out) = 0;
  // y[rows, w.rows] = x[rows, w.columns] w^T (+ bias). With accumulate: y += instead of =.
  virtual void MatMul(const Weight& w, Tensor x, Tensor y, bool accumulate) = 0;
  // qkv [rows, (q_heads + 2 kv_heads) * head_dim]. Applies the steps to the q and k heads of each
  // row in place (rotation: the half-split convention of Hugging Face Llama, over the first
  // rotary_dim dimensions) and writes K and V of the row to its slot.
  virtual void RopeAndStoreKv(int layer, const HeadSteps& steps, Tensor qkv, KvPool* pool) = 0;
  // Forest attention: each row attends to the context that the plan and the rule give it. qkv is
  // what RopeAndStoreKv left; out [rows, q_heads * head_dim].
  virtual void Attention(int layer, const AttentionRule& rule, Tensor qkv, const KvPool& pool,
                         Tensor out) = 0;
  // in [rows, 2 n], gate then up: out[rows, n] = f(gate) * up. in [rows, n]: out = f(in).
  virtual void Activate(Activation f, Tensor in, Tensor out) = 0;
  // Each row takes the `chosen` experts with the largest scores of the router (of equals those with
  // the lower number), with shares softmax(scores): out[row] = sum of share * down(f(gate(x)) *
  // up(x)) over its experts, in ascending order. x, out [rows, d]; out is f32, and not x.
  virtual void MixExperts(const Experts& experts, Tensor x, Tensor out) = 0;
  // x[rows, n] = cap * tanh(x / cap). f32.
  virtual void SoftCap(Tensor x, float cap) = 0;
  // The pool keeps bf16(x[r]) as the state of the slot of row r; after GatherRows, of the row that
  // has need r. x [rows, state_columns], f32.
  virtual void StoreStates(Tensor x, KvPool* pool) = 0;
  // x[r] = the state that the plan gives to row r, or else that of the slot before the row's own in
  // its chain. x [rows, state_columns], f32.
  virtual void LoadStates(const KvPool& pool, Tensor x) = 0;
  // x[r] = the state that the plan gives to row r; rows that it gives none keep theirs. x [rows,
  // columns of the states].
  virtual void PutStates(Tensor x) = 0;
  // out[r] = norm(a[r]), then norm(b[r]). a, b f32 [rows, n], [rows, m]; out [rows, n + m]; none is
  // another.
  virtual void NormPair(Tensor a, const Norm& of_a, Tensor b, const Norm& of_b, Tensor out) = 0;
  // Moves the rows that have needs to the front of each tensor, in order. Later ops work on these.
  virtual void GatherRows(absl::Span<const Tensor> tensors) = 0;
  // x[rows, n] = sum over the ranks, in rank order.
  virtual void AllReduce(Tensor x) = 0;
  // wide[r, ids[i]] = kept[r, i] for the ids of the scatter; -infinity elsewhere. kept [rows,
  // w.columns], wide [rows, w.rows], both f32.
  virtual void Scatter(const Weight& w, Tensor kept, Tensor wide) = 0;
  // The last op: takes from the logits what the plan needs. logits [needs, shard]: this rank's
  // tokens, from first_token on, of a vocabulary of `vocab`. The shards are those of
  // VocabularyShard.
  virtual void Select(Tensor logits, int64_t first_token, int64_t vocab) = 0;
};

// Enqueues the ops of a step, in two parts, so that the host learns when only the head is left.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual void Body(Ops* ops) = 0;  // all layers, GatherRows included; called once for each step
  virtual void Head(Ops* ops) = 0;  // only when the plan has needs
};

// What a step gives to the decisions: for each need of the plan, the whole row or the candidate
// list asked for. Where a whole row costs nothing, a backend may give it instead of a candidate
// list.
class StepRows {
 public:
  virtual ~StepRows() = default;
  // [vocab] f32; empty when the row came as a candidate list. Any thread.
  virtual absl::Span<const float> Whole(int need) const = 0;
  // nullptr when the row came whole. Any thread.
  virtual const CandidateRow* Listed(int need) const = 0;
};

// Memory that weights, activations and the KV pool share, in bytes. 0, 0: not known.
struct MemoryFacts {
  int64_t free = 0;
  int64_t total = 0;
  // Device memory: the KV pool takes all of it at once. Host memory is taken block by block.
  bool of_device = false;
};

// Measured time of the matrix products of a forward pass. Fewer rows take as long, down to the next
// smaller entry of a list.
struct RowCost {
  int64_t rows = 0;
  double seconds = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;         // "cpu", "cuda"
  virtual std::string description() const = 0;  // e.g. "cpu AVX2, 2 threads"
  // Where its GPU is on the PCI bus, e.g. "0000:3b:00.0"; "": it computes on the host's processors.
  virtual std::string pci_bus_id() const { return ""; }
  // Whether the bits of a row depend only on its own inputs: not on the other rows of the step, the
  // number of threads, or the place of its context in the KV pool.
  virtual bool batch_invariant() const = 0;
  virtual absl::StatusOr<MemoryFacts> Memory() const = 0;  // memory in use now
  // Whether weights may be kept in this type; KV too, if the type is for both. Every backend keeps
  // KV as kI8.
  virtual bool stores(DType dtype) const = 0;
  // Whether a model may have weights in the block formats that the backend stores, if its other
  // weights have this type, and if it has layers of experts.
  virtual bool serves_blocks(DType /*beside*/, bool /*experts*/) const { return true; }
  // Called before the first Pack of a model: the type of its weights that are not in blocks, and of
  // its activations where the backend keeps them in the type of weights. Without it, the first weight
  // decides.
  virtual void SetActivations(DType /*dtype*/) {}

  // Packs matrices stacked along their rows as one (QKV, gate and up), converted to dtype. Sources
  // in a block format are kept in it bit for bit. Of the block formats only those that can be
  // quantised to (block_format.h) may be asked of other sources. bias [rows] or empty.
  // ResourceExhausted when memory runs out; InvalidArgument names what does not match, the weight
  // that is too large for F16, and the block whose scale is not finite.
  virtual absl::StatusOr<std::unique_ptr<Weight>> Pack(absl::Span<const MatrixSource> stacked,
                                                       DType dtype, std::vector<float> bias) = 0;
  // The same with a type for each source: a GGUF file may mix them in one stack. A backend that keeps
  // a stack in one type takes one that holds the values of all, or returns Unimplemented.
  virtual absl::StatusOr<std::unique_ptr<Weight>> PackEach(absl::Span<const MatrixSource> stacked,
                                                           absl::Span<const DType> dtypes,
                                                           std::vector<float> bias);
  // For a Norm. bias: as long as the gain, or empty.
  virtual absl::StatusOr<std::unique_ptr<Weight>> PackGain(std::vector<float> gain,
                                                           std::vector<float> bias = {}) = 0;
  // For Ops::Scatter. ids: ascending, distinct, in [0, places).
  virtual absl::StatusOr<std::unique_ptr<Weight>> PackScatter(std::vector<int32_t> ids,
                                                              int64_t places) = 0;
  virtual absl::StatusOr<std::unique_ptr<KvPool>> MakeKvPool(const KvPoolShape& shape) = 0;
  virtual absl::StatusOr<std::shared_ptr<const RopeTable>> MakeRope(const RopeConfig& config) = 0;
  // Lives as long as the backend. Uninitialised, so rows that are never used cost no memory.
  virtual absl::StatusOr<Tensor> Allocate(int64_t rows, int64_t columns, DType dtype) = 0;
  // The same for an f32 tensor that AllReduce is given. Collective: every rank asks for the same.
  virtual absl::StatusOr<Tensor> AllocateSummed(int64_t rows, int64_t columns) {
    return Allocate(rows, columns, DType::kF32);
  }
  virtual DType activation_dtype() const = 0;  // of the tensors between ops; the residual is f32

  // Call it once, before the first step, when the pass has its weights and tensors: measures what
  // makes steps fast. Overwrites the tensors. moves_on is called now and then; it may be empty.
  virtual absl::Status Prepare(Pass* /*pass*/, const std::function<void()>& /*moves_on*/) {
    return absl::OkStatus();
  }
  // What Prepare has measured, by rows, ascending; empty when it measured nothing.
  virtual std::vector<RowCost> RowCosts() const { return {}; }

  // Starts a step. The plan must have passed CheckPlan (plan/plan_check.h). The plan, the pass and
  // what the pass refers to must live until Wait. A plan with `fetch` runs no pass: it makes the
  // named rows of the previous step whole. An error means that this rank cannot start the step.
  virtual absl::Status Submit(const StepPlan& plan, Pass* pass) = 0;
  // Whether only the head is left to compute. To be polled.
  virtual bool HeadReached() = 0;
  // Waits until the step has run. Returns the rows on rank 0, nullptr on other ranks. They are
  // valid until the next Submit; a plan with `fetch` keeps those of the previous step.
  virtual absl::StatusOr<const StepRows*> Wait() = 0;

  // Copies the states of these slots to the host: out [slots, state_columns]. Between Wait and the
  // next Submit.
  virtual absl::Status ReadStates(const KvPool& pool, absl::Span<const int32_t> slots,
                                  uint16_t* out);

  // Payload of the sums that the steps so far have formed without the communicator, on all ranks.
  // Each sum counts its data once per rank.
  virtual uint64_t collective_bytes() const { return 0; }

  // Whether this backend can choose the levels of such a forest, whose rows have this need in a
  // vocabulary of this many tokens.
  virtual bool GrowsForest(const ForestPlan::Forest& /*forest*/, const RowNeed& /*need*/,
                           int64_t /*vocab*/) const {
    return false;
  }
  // Starts the forward passes of forests that the backend can grow, instead of Submit and Wait for
  // each level. Then HeadReached says whether only the head of the last forward pass is left. As
  // with Submit, the plan must live until WaitForests.
  virtual absl::Status SubmitForests(const ForestPlan& plan, Pass* pass);
  // The grown forests, [forests]. The rows of the previous step are no longer valid.
  virtual absl::StatusOr<std::vector<GrownForest>> WaitForests();
};

// Settings for collectives of a replica's ranks on devices. The CPU backend and a single rank do
// not need them.
struct CollectiveOptions {
  // auto: NCCL and one-shot kernels, by size, where every rank has them and a device of its own,
  // else the host. nccl, oneshot: that alone, or an error. host: sums go through host memory and
  // the communicator. oneshot and host sum in rank order; in exact mode auto takes one of them.
  std::string kind = "auto";
  double start_deadline_s = 60;  // for the ranks to find each other
  double step_deadline_s = 30;   // for one step
  int place = 0;  // index of this rank among those of its host: which device it takes
  // Called from a thread of the backend when a step was aborted, by its deadline or by a failure of
  // the collectives, and the thread of the steps does not return. It should end the process. May be
  // empty.
  std::function<void(const absl::Status&)> on_hang;
};

struct BackendOptions {
  std::string kind = "cpu";                    // "cpu" or "cuda"
  ThreadTeam* threads = nullptr;               // host threads; the CPU backend computes on them
  comm::Communicator* communicator = nullptr;  // communicator of this rank's replica
  bool always_list = false;  // for tests: give candidate lists even where whole rows cost nothing
  // CUDA: a step whose ops have run before is enqueued by graphs. false, for tests and benchmarks:
  // op by op. The results have the same bits.
  bool graphs = true;
  // Receives warnings for the operator that are not logged elsewhere. May be empty.
  std::function<void(const std::string& message)> warn;
  // Called, by the thread of the backend, when HeadReached or Wait sees that the device has done a
  // part of a step. May be empty. The CPU backend computes while ops are given to it.
  std::function<void()> on_part;
  // CUDA: batch_invariant, at the price of time. The CPU backend always is.
  bool exact = false;
  // CUDA, from compute capability 9.0 on: a kernel is placed on the device, and products fetch their
  // first weights, before the kernel before it is done. The results have the same bits.
  bool overlap_launches = true;
  // CUDA: attention over many rows by wgmma and the copy engine, on compute capability 9.0 alone.
  // Off until a device has proven it.
  bool wide_attention = false;
  CollectiveOptions collectives;
  // Folder that keeps what Prepare measures; "auto": $XDG_CACHE_HOME/coppice or
  // $HOME/.cache/coppice. "": Prepare measures nothing. The CPU backend has nothing to measure.
  std::string tuning_cache;
  // Instruction set of the CPU backend, for the whole process: "best" or a name of
  // cpu/kernel_target.h.
  std::string cpu_kernels = "best";
};
// Threads and communicator must outlive the backend. Unimplemented: this build does not have the
// backend that it names.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);

}  // namespace coppice::kernels
