// Speed of the CPU kernels at the shapes of a 24-layer decoder (hidden 768, intermediate 2048,
// vocabulary 4096).
//   coppice-bench-kernels --benchmark_filter=Forward     cost of several rows, compared with one
//   coppice-bench-kernels --benchmark_filter=DramRead    memory bandwidth, for comparison
//   coppice-bench-kernels --benchmark_filter='Forward/rows:1/'   types of weights, compared
//   coppice-bench-kernels --benchmark_filter=RequestsAttention   a context that requests share
// Forward states its floor beside its time: the bytes of its weights over the bandwidth of reads
// that the same threads reach in the same run. The weights of single products stay in the
// last-level cache. Those of Forward (340 MB in bf16) do not. COPPICE_BENCH_THREADS sets the number
// of threads (default: all cores), COPPICE_BENCH_KERNELS the instruction set (as --kernels of a
// node).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/check.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "kernels/cpu/kv_pool.h"
#include "kernels/cpu/page_buffer.h"

namespace coppice::bench {
namespace {

constexpr int kHidden = 768;
constexpr int kIntermediate = 2048;
constexpr int kVocabulary = 4096;
constexpr int kLayers = 24;
const std::vector<int64_t> kBits = {32, 16, 8, 4};  // f32, bf16, int8, int4

int Threads() {
  const char* text = std::getenv("COPPICE_BENCH_THREADS");
  return text == nullptr ? AvailableCores() : std::atoi(text);
}

kernels::Backend& SharedBackend() {
  static const std::unique_ptr<comm::Communicator> one_rank = comm::MakeSingleCommunicator();
  static ThreadTeam threads(Threads());
  static const std::unique_ptr<kernels::Backend> backend = [] {
    kernels::BackendOptions options{.threads = &threads, .communicator = one_rank.get()};
    if (const char* kernels = std::getenv("COPPICE_BENCH_KERNELS")) options.cpu_kernels = kernels;
    return kernels::MakeBackend(options).value();
  }();
  return *backend;
}

// Runs ops as the body of a step.
class BodyAlone : public kernels::Pass {
 public:
  explicit BodyAlone(absl::FunctionRef<void(kernels::Ops*)> body) : body_(body) {}
  void Body(kernels::Ops* ops) override { body_(ops); }
  void Head(kernels::Ops*) override {}

 private:
  absl::FunctionRef<void(kernels::Ops*)> body_;
};

void RunStep(const StepPlan& plan, absl::FunctionRef<void(kernels::Ops*)> body) {
  BodyAlone pass(body);
  COPPICE_CHECK(SharedBackend().Submit(plan, &pass).ok());
  COPPICE_CHECK(SharedBackend().Wait().ok());
}

// Rows of one request. Row r sees the `context` tokens of its table and itself, in a slot after
// them.
StepPlan MakePlan(int rows, int context) {
  const int blocks = (context + kBlockSize - 1) / kBlockSize;
  StepPlan plan;
  plan.token.assign(rows, 0);
  plan.position.assign(rows, context);
  plan.segments = {{0, rows, context}};
  for (int i = 0; i < blocks; ++i) plan.table.push_back(i + 1);
  plan.table_begin = {0, blocks};
  for (int r = 0; r < rows; ++r) {
    plan.slot.push_back((blocks + 1 + r) * kBlockSize);
    plan.chain.push_back(plan.slot.back());
    plan.chain_begin.push_back(r + 1);
  }
  return plan;
}

kernels::Tensor TensorOf(std::vector<float>* values, int64_t columns) {
  const auto rows = static_cast<int64_t>(values->size()) / columns;
  return {values->data(), kernels::DType::kF32, rows, columns};
}

std::vector<float> Ramp(int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(i * 2654435761u % 1000) / 1000.0f - 0.5f;
  return values;
}

std::unique_ptr<kernels::Weight> MakeWeight(int64_t outputs, int64_t inputs, kernels::DType dtype) {
  const std::vector<float> values = Ramp(outputs * inputs);
  const kernels::MatrixSource source = {values.data(), kernels::DType::kF32, outputs, inputs,
                                        inputs};
  return SharedBackend().Pack({source}, dtype, {}).value();
}

kernels::DType TypeOf(int64_t bits) {
  using kernels::DType;
  return bits == 32   ? DType::kF32
         : bits == 16 ? DType::kBF16
         : bits == 8  ? DType::kQ8_0
                      : DType::kQ4_0;
}

// Arguments: rows, inputs, outputs, bits of a weight.
void MatMul(benchmark::State& state) {
  const int64_t rows = state.range(0), inputs = state.range(1), outputs = state.range(2);
  const auto weight = MakeWeight(outputs, inputs, TypeOf(state.range(3)));
  std::vector<float> x = Ramp(rows * inputs), y(rows * outputs);
  const StepPlan plan = MakePlan(static_cast<int>(rows), 0);
  const kernels::Tensor input = TensorOf(&x, inputs), output = TensorOf(&y, outputs);
  for (auto _ : state) {
    RunStep(plan, [&](kernels::Ops* ops) { ops->MatMul(*weight, input, output, false); });
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(weight->bytes));
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(rows * inputs * outputs),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(MatMul)
    ->ArgNames({"rows", "inputs", "outputs", "bits"})
    ->ArgsProduct({{1, 4, 8, 16, 20, 32, 256}, {kHidden}, {kHidden, 2 * kIntermediate}, kBits})
    ->ArgsProduct({{1, 4, 8, 16, 20, 32, 256}, {kIntermediate}, {kHidden}, kBits})
    ->UseRealTime();

// Reads the words in four streams.
uint64_t SumOf(const uint64_t* words, int64_t count) {
  const int64_t part = count / 4 / 8 * 8;
  uint64_t sum[4] = {};
  for (int64_t i = 0; i < part; i += 8) {
    for (int stream = 0; stream < 4; ++stream) {
      const uint64_t* line = words + stream * part + i;
      __builtin_prefetch(line + 512);
      for (int k = 0; k < 8; ++k) sum[stream] += line[k];
    }
  }
  return sum[0] + sum[1] + sum[2] + sum[3];
}

// Bytes per second that the threads of the backend read from memory: the best of nine reads of
// 256 MB, in chunks that they take in turn as those of a product.
double ReadBandwidth() {
  static const double best = [] {
    ThreadTeam team(Threads());
    constexpr int64_t kWords = int64_t{32} << 20;
    constexpr int kChunks = 64;
    const auto pages = kernels::cpu::PageBuffer::Allocate(kWords * 8, /*huge_pages=*/true,
                                                          "the words to read");  // as weights
    COPPICE_CHECK(pages.ok());
    auto* const data = reinterpret_cast<uint64_t*>(pages->data());
    std::fill_n(data, kWords, uint64_t{1});
    std::vector<uint64_t> sums(kChunks);
    double seconds = 1e9;
    for (int run = 0; run < 9; ++run) {
      const auto start = std::chrono::steady_clock::now();
      team.Run(kChunks, [&](int chunk) {
        sums[chunk] = SumOf(data + kWords / kChunks * chunk, kWords / kChunks);
      });
      benchmark::DoNotOptimize(sums);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      seconds = std::min(seconds, took.count());
    }
    return kWords * 8 / seconds;
  }();
  return best;
}

// All products of one forward pass, with weights that fit no cache.
class Products : public kernels::Pass {
 public:
  explicit Products(kernels::DType dtype) {
    // In a model of int4, QKV and head are int8.
    const kernels::DType fine = dtype == kernels::DType::kQ4_0 ? kernels::DType::kQ8_0 : dtype;
    for (int layer = 0; layer < kLayers; ++layer) {
      weights_.push_back(MakeWeight(3 * kHidden, kHidden, fine));
      weights_.push_back(MakeWeight(kHidden, kHidden, dtype));
      weights_.push_back(MakeWeight(2 * kIntermediate, kHidden, dtype));
      weights_.push_back(MakeWeight(kHidden, kIntermediate, dtype));
    }
    weights_.push_back(MakeWeight(kVocabulary, kHidden, fine));
    for (const auto& weight : weights_) {
      bytes_ += weight->bytes;
      elements_ += weight->rows * weight->columns;
    }
  }
  void SetRows(int64_t rows) {
    x_ = Ramp(rows * kIntermediate);
    y_.resize(rows * kVocabulary);
    rows_ = rows;
  }
  void Body(kernels::Ops* ops) override {
    for (const auto& weight : weights_) {
      ops->MatMul(*weight, {x_.data(), kernels::DType::kF32, rows_, weight->columns},
                  {y_.data(), kernels::DType::kF32, rows_, weight->rows}, false);
    }
  }
  void Head(kernels::Ops*) override {}
  size_t bytes() const { return bytes_; }
  int64_t elements() const { return elements_; }

 private:
  std::vector<std::unique_ptr<kernels::Weight>> weights_;
  size_t bytes_ = 0;
  int64_t elements_ = 0;
  int64_t rows_ = 0;
  std::vector<float> x_, y_;
};

Products& ProductsOf(int64_t bits) {
  static std::map<int64_t, std::unique_ptr<Products>> made;
  std::unique_ptr<Products>& products = made[bits];
  if (products == nullptr) products = std::make_unique<Products>(TypeOf(bits));
  return *products;
}

// Arguments: rows, bits of a weight.
void Forward(benchmark::State& state) {
  Products& products = ProductsOf(state.range(1));
  const int64_t rows = state.range(0);
  products.SetRows(rows);
  const StepPlan plan = MakePlan(static_cast<int>(rows), 0);
  for (auto _ : state) {
    COPPICE_CHECK(SharedBackend().Submit(plan, &products).ok());
    COPPICE_CHECK(SharedBackend().Wait().ok());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(products.bytes()));
  const double flops = 2.0 * static_cast<double>(products.elements() * rows);
  state.counters["floor_ms"] = 1e3 * static_cast<double>(products.bytes()) / ReadBandwidth();
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(Forward)
    ->ArgNames({"rows", "bits"})
    ->ArgsProduct({{1, 2, 4, 6, 8, 12, 16, 20, 32, 64, 256}, kBits})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// Attention of `rows` new tokens over `context` earlier ones, one layer of 12 heads of 64.
// Arguments: rows, context, KV heads, bits of K and V.
void Attention(benchmark::State& state) {
  constexpr int kHeads = 12, kHeadDim = 64;
  const int rows = static_cast<int>(state.range(0)), context = static_cast<int>(state.range(1));
  const int kv_heads = static_cast<int>(state.range(2));
  const int prefix_blocks = (context + kBlockSize - 1) / kBlockSize;
  const kernels::DType dtype = state.range(3) == 8    ? kernels::DType::kI8
                               : state.range(3) == 16 ? kernels::DType::kBF16
                                                      : kernels::DType::kF32;
  const kernels::KvPoolShape shape = {1, kv_heads, kHeadDim, prefix_blocks + rows + 1, dtype};
  const auto pool = SharedBackend().MakeKvPool(shape).value();
  auto& host = static_cast<kernels::cpu::CpuKvPool&>(*pool);
  std::memset(host.storage.data(), 0x3c, pool->bytes);  // pages of its own; 0.0115 as f32 or bf16
  const int64_t width = (kHeads + 2 * kv_heads) * kHeadDim;
  std::vector<float> qkv = Ramp(rows * width), out(int64_t{rows} * kHeads * kHeadDim);
  const StepPlan plan = MakePlan(rows, context);
  const kernels::Tensor input = TensorOf(&qkv, width), output = TensorOf(&out, kHeads * kHeadDim);
  for (auto _ : state) {
    RunStep(plan,
            [&](kernels::Ops* ops) { ops->Attention(0, {.scale = 0.125f}, input, *pool, output); });
    benchmark::ClobberMemory();
  }
}
BENCHMARK(Attention)
    ->ArgNames({"rows", "context", "kv_heads", "bits"})
    ->ArgsProduct({{1, 4, 16, 256}, {512}, {4, 12}, {32, 16, 8}})
    ->ArgsProduct({{1, 4}, {8192, 65536}, {4, 12}, {16, 8}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// One row of each of `requests`, whose block tables begin with the same `common` tokens and have
// `own` more.
StepPlan PlanOfRequests(int requests, int common, int own) {
  const int shared = common / kBlockSize, blocks = (common + own) / kBlockSize;
  StepPlan plan;
  int32_t next = 1 + shared;
  for (int i = 0; i < requests; ++i) {
    plan.segments.push_back({i, 1, blocks * kBlockSize});
    for (int block = 0; block < blocks; ++block)
      plan.table.push_back(block < shared ? 1 + block : next++);
    plan.table_begin.push_back(static_cast<int32_t>(plan.table.size()));
  }
  for (int i = 0; i < requests; ++i) {
    plan.token.push_back(0);
    plan.position.push_back(blocks * kBlockSize);
    plan.slot.push_back(next++ * kBlockSize);
    plan.chain.push_back(plan.slot.back());
    plan.chain_begin.push_back(i + 1);
  }
  return plan;
}

// Eight layers of 24 heads of 64 with 8 KV heads, for one row of each request. Each layer has its
// own KV as in a model, so that it comes from memory. Arguments: requests, tokens of the context
// that all share, tokens of a request's own, bits of K and V.
void RequestsAttention(benchmark::State& state) {
  constexpr int kHeads = 24, kKvHeads = 8, kHeadDim = 64, kLayersOfKv = 8;
  const int requests = static_cast<int>(state.range(0));
  const StepPlan plan =
      PlanOfRequests(requests, static_cast<int>(state.range(1)), static_cast<int>(state.range(2)));
  const int64_t blocks = plan.slot.back() / kBlockSize + 1;
  const kernels::DType dtype = state.range(3) == 8    ? kernels::DType::kI8
                               : state.range(3) == 16 ? kernels::DType::kBF16
                                                      : kernels::DType::kF32;
  const auto pool =
      SharedBackend().MakeKvPool({kLayersOfKv, kKvHeads, kHeadDim, blocks, dtype}).value();
  auto& host = static_cast<kernels::cpu::CpuKvPool&>(*pool);
  std::memset(host.storage.data(), 0x3c, pool->bytes);
  const int64_t width = (kHeads + 2 * kKvHeads) * kHeadDim;
  std::vector<float> qkv = Ramp(requests * width), out(int64_t{requests} * kHeads * kHeadDim);
  const kernels::Tensor input = TensorOf(&qkv, width), output = TensorOf(&out, kHeads * kHeadDim);
  for (auto _ : state) {
    RunStep(plan, [&](kernels::Ops* ops) {
      for (int layer = 0; layer < kLayersOfKv; ++layer)
        ops->Attention(layer, {.scale = 0.125f}, input, *pool, output);
    });
    benchmark::ClobberMemory();
  }
}
BENCHMARK(RequestsAttention)
    ->ArgNames({"requests", "common", "own", "bits"})
    ->ArgsProduct({{16}, {2000}, {0, 64}, {32, 16, 8}})
    ->ArgsProduct({{16}, {0}, {64, 2000}, {32, 16, 8}})
    ->Args({64, 2000, 64, 16})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// Packing 340 MB of bf16 weights. Argument: bits of a weight as packed.
void Pack(benchmark::State& state) {
  constexpr int64_t kRows = 221184;
  std::vector<uint16_t> source(kRows * kHidden);  // from 0.5 to 2
  for (size_t i = 0; i < source.size(); ++i) source[i] = 0x3f00 + i * 2654435761u % 256;
  const kernels::MatrixSource matrix = {source.data(), kernels::DType::kBF16, kRows, kHidden,
                                        kHidden};
  for (auto _ : state) {
    auto packed = SharedBackend().Pack({matrix}, TypeOf(state.range(0)), {});
    benchmark::DoNotOptimize(packed);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(source.size() * 2));
}
BENCHMARK(Pack)
    ->ArgName("bits")
    ->Arg(16)
    ->Arg(8)
    ->Arg(4)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// Reads 512 MB. Argument: threads.
void DramRead(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const std::vector<uint64_t> data(size_t{64} << 20, 1);
  std::vector<uint64_t> sums(threads * 16);
  for (auto _ : state) {
    std::vector<std::thread> readers;
    for (int t = 0; t < threads; ++t) {
      readers.emplace_back([&, t] {
        const size_t begin = data.size() * t / threads, end = data.size() * (t + 1) / threads;
        uint64_t sum = 0;
        for (size_t i = begin; i < end; ++i) sum += data[i];
        sums[t * 16] = sum;
      });
    }
    for (std::thread& reader : readers) reader.join();
    benchmark::DoNotOptimize(sums);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(data.size() * 8));
}
BENCHMARK(DramRead)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace coppice::bench
