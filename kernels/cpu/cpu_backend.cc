#include "kernels/cpu/cpu_backend.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "hwy/targets.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/kernel_target.h"
#include "kernels/cpu/kv_pool.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/rope_table.h"

namespace coppice::cpu {
namespace {

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(int threads) : team_(threads) {}

  const char* name() const override { return "cpu"; }
  std::string description() const override {
    return absl::StrCat("cpu ", KernelTargetName(), ", ", team_.count(),
                        team_.count() == 1 ? " thread" : " threads");
  }

  HostThreads* host_threads() override { return &team_; }

  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(const MatrixSource& source,
                                                     DType dtype) override {
    return PackMatrix(absl::MakeConstSpan(&source, 1), dtype, &team_);
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> PackStacked(absl::Span<const MatrixSource> sources,
                                                            DType dtype) override {
    return PackMatrix(sources, dtype, &team_);
  }
  absl::StatusOr<std::unique_ptr<KvPool>> MakeKvPool(const KvPoolShape& shape) override {
    return MakeCpuKvPool(shape);
  }
  std::shared_ptr<const RopeTable> MakeRope(const RopeConfig& config) override {
    return std::make_shared<RopeTable>(BuildRopeTable(config));
  }

  void MatMul(const PackedMatrix& w, const float* x, int64_t rows, float* y,
              absl::Span<const float> bias, bool accumulate) override {
    COPPICE_CHECK(bias.empty() || static_cast<int64_t>(bias.size()) == w.rows);
    const float* bias_data = bias.empty() ? nullptr : bias.data();
    cpu::MatMul({static_cast<const CpuMatrix*>(&w), x, rows, y, bias_data, accumulate}, &team_);
  }

  void Embed(const PackedMatrix& w, int64_t first_row, absl::Span<const TokenId> tokens,
             float* out) override {
    cpu::Embed(static_cast<const CpuMatrix&>(w), first_row, tokens, out);
  }

  void RmsNorm(const float* x, absl::Span<const float> gain, float epsilon, int64_t rows, int64_t n,
               float* out) override {
    COPPICE_CHECK(static_cast<int64_t>(gain.size()) == n);
    ForRows(rows, n, [&](int64_t begin, int64_t end) {
      cpu::RmsNorm(x + begin * n, gain.data(), epsilon, end - begin, n, out + begin * n);
    });
  }

  void Add(float* x, const float* y, int64_t count) override { cpu::Add(x, y, count); }

  void SwiGlu(const float* gate_up, int64_t rows, int64_t n, float* out) override {
    ForRows(rows, 4 * n, [&](int64_t begin, int64_t end) {
      cpu::SwiGlu(gate_up + begin * 2 * n, end - begin, n, out + begin * n);
    });
  }

  void RopeAndStoreKv(float* qkv, absl::Span<const int32_t> positions,
                      absl::Span<const int32_t> slots, int q_heads, const RopeTable& rope,
                      int layer, KvPool* pool) override {
    COPPICE_CHECK(positions.size() == slots.size());
    const RopeAndStoreArgs args = {
        qkv, positions, slots, q_heads, &rope, layer, static_cast<CpuKvPool*>(pool)};
    const int64_t width = int64_t{q_heads + 2 * pool->shape.kv_heads} * pool->shape.head_dim;
    ForRows(static_cast<int64_t>(positions.size()), 2 * width,
            [&](int64_t begin, int64_t end) { cpu::RopeAndStoreKv(args, begin, end); });
  }

  void Attention(const float* qkv, int q_heads, const AttentionContext& context, int layer,
                 const KvPool& pool, float* out) override {
    cpu::Attention({qkv, q_heads, &context, layer, static_cast<const CpuKvPool*>(&pool), out},
                   &team_);
  }

  void CopyKv(absl::Span<const KvCopy> copies, KvPool* pool) override {
    cpu::CopyKv(copies, static_cast<CpuKvPool*>(pool));
  }

 private:
  // function(begin, end) over ranges of rows, in parallel when there is enough to do. work: simple
  // operations a row.
  template <class Function>
  void ForRows(int64_t rows, int64_t work, Function&& function) {
    constexpr int64_t kWorkPerChunk = 64 << 10;  // about 20 us
    const int64_t chunks =
        std::clamp<int64_t>(rows * work / kWorkPerChunk, 1, std::max<int64_t>(1, rows));
    const int count = static_cast<int>(std::min<int64_t>(chunks, 4 * team_.count()));
    team_.Run(count,
              [&](int chunk) { function(rows * chunk / count, rows * (chunk + 1) / count); });
  }

  ThreadTeam team_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(int threads) {
  return std::make_unique<CpuBackend>(threads == 0 ? AvailableCores() : threads);
}

}  // namespace coppice::cpu
