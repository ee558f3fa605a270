// Speed of the CPU kernels at the shapes of a 24-layer decoder (hidden 768, intermediate 2048,
// vocabulary 4096).
//   coppice-bench-kernels --benchmark_filter=Forward     cost of a batch of rows against one row
//   coppice-bench-kernels --benchmark_filter=DramRead    what the memory gives, to compare GB/s
//   with
// The weights of single products stay in the last-level cache; those of Forward (340 MB in bf16) do
// not. Threads: COPPICE_BENCH_THREADS, all cores by default.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/backend.h"

namespace coppice {
namespace {

constexpr int kHidden = 768;
constexpr int kIntermediate = 2048;
constexpr int kVocabulary = 4096;
constexpr int kLayers = 24;

int Threads() {
  const char* text = std::getenv("COPPICE_BENCH_THREADS");
  return text == nullptr ? 0 : std::atoi(text);
}

Backend& SharedBackend() {
  static const std::unique_ptr<Backend> backend = MakeBackend("cpu", Threads()).value();
  return *backend;
}

std::vector<float> Ramp(int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(i * 2654435761u % 1000) / 1000.0f - 0.5f;
  return values;
}

std::unique_ptr<PackedMatrix> MakeWeight(int64_t outputs, int64_t inputs, DType dtype) {
  const std::vector<float> values = Ramp(outputs * inputs);
  return SharedBackend().Pack({values.data(), DType::kF32, outputs, inputs, inputs}, dtype).value();
}

// Arguments: rows, inputs, outputs, bf16.
void MatMul(benchmark::State& state) {
  const int64_t rows = state.range(0), inputs = state.range(1), outputs = state.range(2);
  const auto weight = MakeWeight(outputs, inputs, state.range(3) != 0 ? DType::kBF16 : DType::kF32);
  const std::vector<float> x = Ramp(rows * inputs);
  std::vector<float> y(rows * outputs);
  for (auto _ : state) {
    SharedBackend().MatMul(*weight, x.data(), rows, y.data(), {}, false);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(weight->bytes));
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(rows * inputs * outputs),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(MatMul)
    ->ArgNames({"rows", "inputs", "outputs", "bf16"})
    ->ArgsProduct({{1, 4, 8, 16, 20, 32, 256}, {kHidden}, {kHidden, 2 * kIntermediate}, {0, 1}})
    ->ArgsProduct({{1, 4, 8, 16, 20, 32, 256}, {kIntermediate}, {kHidden}, {0, 1}})
    ->UseRealTime();

// Every product of one forward pass, on weights that do not fit any cache. Arguments: rows, bf16.
class Decoder {
 public:
  explicit Decoder(DType dtype) {
    for (int layer = 0; layer < kLayers; ++layer) {
      weights_.push_back(MakeWeight(3 * kHidden, kHidden, dtype));
      weights_.push_back(MakeWeight(kHidden, kHidden, dtype));
      weights_.push_back(MakeWeight(2 * kIntermediate, kHidden, dtype));
      weights_.push_back(MakeWeight(kHidden, kIntermediate, dtype));
    }
    weights_.push_back(MakeWeight(kVocabulary, kHidden, dtype));
    for (const auto& weight : weights_) bytes_ += weight->bytes;
  }
  void Run(const float* x, int64_t rows, float* y) const {
    for (const auto& weight : weights_) SharedBackend().MatMul(*weight, x, rows, y, {}, false);
  }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<std::unique_ptr<PackedMatrix>> weights_;
  size_t bytes_ = 0;
};

void Forward(benchmark::State& state) {
  static const Decoder f32(DType::kF32);
  static const Decoder bf16(DType::kBF16);
  const Decoder& decoder = state.range(1) != 0 ? bf16 : f32;
  const int64_t rows = state.range(0);
  const std::vector<float> x = Ramp(rows * kIntermediate);
  std::vector<float> y(rows * kVocabulary);
  for (auto _ : state) {
    decoder.Run(x.data(), rows, y.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(decoder.bytes()));
  const double flops =
      static_cast<double>(decoder.bytes()) / (state.range(1) != 0 ? 2 : 4) * 2 * rows;
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(Forward)
    ->ArgNames({"rows", "bf16"})
    ->ArgsProduct({{1, 2, 4, 6, 8, 12, 16, 20, 32, 64, 256}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// Attention of `rows` new tokens over `context` earlier ones, one layer of 12 heads of 64.
// Arguments: rows, context, KV heads, bf16.
void Attention(benchmark::State& state) {
  constexpr int kHeads = 12, kHeadDim = 64;
  const int rows = static_cast<int>(state.range(0)), context = static_cast<int>(state.range(1));
  const int kv_heads = static_cast<int>(state.range(2));
  const int prefix_blocks = (context + kBlockSize - 1) / kBlockSize;
  const DType dtype = state.range(3) != 0 ? DType::kBF16 : DType::kF32;
  const auto pool =
      SharedBackend().MakeKvPool({1, kv_heads, kHeadDim, prefix_blocks + rows + 1, dtype}).value();
  const std::vector<float> qkv = Ramp(int64_t{rows} * (kHeads + 2 * kv_heads) * kHeadDim);
  std::vector<float> out(int64_t{rows} * kHeads * kHeadDim);
  std::vector<int32_t> table(prefix_blocks), row_table(rows, 0), prefix_len(rows, context);
  for (int i = 0; i < prefix_blocks; ++i) table[i] = i + 1;
  const std::vector<int32_t> table_begin = {0, prefix_blocks};
  std::vector<int32_t> chain_begin = {0}, chain;  // each row sees the prefix and itself
  for (int r = 0; r < rows; ++r) {
    chain.push_back((prefix_blocks + 1 + r) * kBlockSize);
    chain_begin.push_back(r + 1);
  }
  for (auto _ : state) {
    SharedBackend().Attention(qkv.data(), kHeads,
                              {row_table, prefix_len, chain_begin, chain, table_begin, table}, 0,
                              *pool, out.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(Attention)
    ->ArgNames({"rows", "context", "kv_heads", "bf16"})
    ->ArgsProduct({{1, 4, 16, 256}, {512}, {4, 12}, {0, 1}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// Packing 340 MB of bf16 weights.
void Pack(benchmark::State& state) {
  constexpr int64_t kRows = 221184;
  std::vector<uint16_t> source(kRows * kHidden, 0x3f80);
  for (auto _ : state) {
    auto packed =
        SharedBackend().Pack({source.data(), DType::kBF16, kRows, kHidden, kHidden}, DType::kBF16);
    benchmark::DoNotOptimize(packed);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(source.size() * 2));
}
BENCHMARK(Pack)->Unit(benchmark::kMillisecond)->UseRealTime();

// Reads 512 MB with that many threads. Argument: threads.
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
}  // namespace coppice
