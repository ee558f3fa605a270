#include "lab/bench/model/limits.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "base/check.h"
#include "kernels/block_format.h"
#include "kernels/cpu/page_buffer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace coppice::bench {
namespace {

using kernels::cpu::KernelTarget;

constexpr int kBest = 9;
constexpr int kChains = 12;  // independent sums: more than latency times instructions per cycle
constexpr int64_t kTurns = 1 << 19;

double Seconds(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count();
}

double BestSeconds(const std::function<void()>& call) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kBest; ++i) best = std::min(best, Seconds(call));
  return best;
}

// Keeps a value from being computed in advance, or not at all.
#define COPPICE_OPAQUE(value) asm volatile("" : "+v"(value))
#define COPPICE_TARGET(names) __attribute__((target(names), noinline))

// A turn of every loop is kChains instructions. They multiply zeros: the values do not matter.
void MulAddLoop() {
  float sum[kChains] = {}, x = 0;
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    asm volatile("" : "+m"(x));
#pragma GCC unroll 12
    for (float& s : sum) s += x * x;
  }
  for (float s : sum) asm volatile("" : "+m"(s));
}

#if defined(__x86_64__)

COPPICE_TARGET("avx2,fma") void Fma256Loop() {
  __m256 sum[kChains] = {}, x = {};
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    COPPICE_OPAQUE(x);
#pragma GCC unroll 12
    for (__m256& s : sum) s = _mm256_fmadd_ps(x, x, s);
  }
#pragma GCC unroll 12
  for (__m256& s : sum) COPPICE_OPAQUE(s);
}

COPPICE_TARGET("avx512f") void Fma512Loop() {
  __m512 sum[kChains] = {}, x = {};
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    COPPICE_OPAQUE(x);
#pragma GCC unroll 12
    for (__m512& s : sum) s = _mm512_fmadd_ps(x, x, s);
  }
#pragma GCC unroll 12
  for (__m512& s : sum) COPPICE_OPAQUE(s);
}

COPPICE_TARGET("avx512f,avx512bf16") void Bf16DotLoop() {
  __m512 sum[kChains] = {};
  __m512i x = {};
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    COPPICE_OPAQUE(x);
    const auto& pairs = reinterpret_cast<const __m512bh&>(x);
#pragma GCC unroll 12
    for (__m512& s : sum) s = _mm512_dpbf16_ps(s, pairs, pairs);
  }
#pragma GCC unroll 12
  for (__m512& s : sum) COPPICE_OPAQUE(s);
}

COPPICE_TARGET("avx2") void MaddubsLoop() {
  __m256i sum[kChains] = {}, x = {};
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    // Two turns at a time would be merged.
#pragma GCC unroll 12
    for (__m256i& s : sum) {
      COPPICE_OPAQUE(x);
      s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), ones));
    }
  }
#pragma GCC unroll 12
  for (__m256i& s : sum) COPPICE_OPAQUE(s);
}

COPPICE_TARGET("avx512f,avx512vnni") void VnniLoop() {
  __m512i sum[kChains] = {}, x = {};
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    COPPICE_OPAQUE(x);
#pragma GCC unroll 12
    for (__m512i& s : sum) s = _mm512_dpbusd_epi32(s, x, x);
  }
#pragma GCC unroll 12
  for (__m512i& s : sum) COPPICE_OPAQUE(s);
}

bool HasVnni() { return __builtin_cpu_supports("avx512vnni"); }

#else

bool HasVnni() { return false; }

#endif

struct Loop {
  void (*run)();
  double operations;  // operations per instruction
};

Loop LoopOf(Instruction instruction) {
  switch (instruction) {
#if defined(__x86_64__)
    case Instruction::kFma256:
      return {Fma256Loop, 16};
    case Instruction::kFma512:
      return {Fma512Loop, 32};
    case Instruction::kBf16Dot:
      return {Bf16DotLoop, 64};
    case Instruction::kMaddubs:
      return {MaddubsLoop, 64};
    case Instruction::kVnni:
      return {VnniLoop, 128};
#endif
    default:
      return {MulAddLoop, 2};
  }
}

// Reads the words as one stream, a line at a time into sums that do not wait for each other.
uint64_t SumOf(const uint64_t* words, int64_t count) {
  using Pair = uint64_t __attribute__((vector_size(16)));
  Pair sum[4] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8) {
    const auto* line = reinterpret_cast<const Pair*>(words + i);
    __builtin_prefetch(line + 256, 0, 2);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) sum[k] += line[k];
  }
  const Pair total = sum[0] + sum[1] + sum[2] + sum[3];
  return total[0] + total[1];
}

// Bytes per second of reading `bytes`, in chunks that are shared among the threads, `rounds` times.
double Bandwidth(ThreadTeam* team, int64_t bytes, int chunks, int rounds) {
  const auto pages =
      kernels::cpu::PageBuffer::Allocate(bytes, /*huge_pages=*/true, "words to read");
  COPPICE_CHECK(pages.ok());
  auto* const words = reinterpret_cast<uint64_t*>(pages->data());
  const int64_t count = bytes / 8 / chunks;
  std::fill_n(words, bytes / 8, uint64_t{1});
  std::vector<uint64_t> sums(chunks * 8);
  const double seconds = BestSeconds([&] {
    team->Run(chunks, [&](int chunk) {
      uint64_t sum = 0;
      for (int round = 0; round < rounds; ++round) {
        sum += SumOf(words + count * chunk, count);
        asm volatile("" : "+r"(sum) : : "memory");  // no round is left out
      }
      sums[chunk * 8] = sum;
    });
  });
  asm volatile("" : : "r"(sums.data()) : "memory");
  return static_cast<double>(bytes) * rounds / seconds;
}

}  // namespace

const char* InstructionName(Instruction instruction) {
  constexpr const char* kNames[] = {"multiply and add", "AVX2 FMA",     "AVX-512 FMA",
                                    "vdpbf16ps",        "AVX2 maddubs", "vpdpbusd"};
  return kNames[static_cast<int>(instruction)];
}

Instruction FloatInstruction(KernelTarget target) {
  return target == KernelTarget::kScalar ? Instruction::kMulAdd : Instruction::kFma256;
}

Instruction ProductInstruction(KernelTarget target, kernels::DType weights) {
  if (target == KernelTarget::kScalar) return Instruction::kMulAdd;
  if (kernels::IsBlockFormat(weights)) {
    const bool vnni = target >= KernelTarget::kAvx512 && HasVnni();
    return vnni ? Instruction::kVnni : Instruction::kMaddubs;
  }
  if (target == KernelTarget::kAvx2) return Instruction::kFma256;
  const bool dot = target == KernelTarget::kAvx512Bf16 && weights == kernels::DType::kBF16;
  return dot ? Instruction::kBf16Dot : Instruction::kFma512;
}

std::vector<double> MedianSeconds(const std::vector<std::function<void()>>& calls,
                                  int repetitions) {
  std::vector<std::vector<double>> seconds(calls.size());
  for (int turn = 0; turn <= repetitions; ++turn) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const double took = Seconds(calls[i]);
      if (turn > 0) seconds[i].push_back(took);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& times : seconds) {
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    medians.push_back(times[times.size() / 2]);
  }
  return medians;
}

double PeakOperations(Instruction instruction, ThreadTeam* team) {
  const Loop loop = LoopOf(instruction);
  const int chunks = 4 * team->count();  // so that a thread that starts late takes fewer
  const double seconds = BestSeconds([&] { team->Run(chunks, [&](int) { loop.run(); }); });
  return loop.operations * kChains * kTurns * chunks / seconds;
}

double ReadBandwidth(ThreadTeam* team) {
  return Bandwidth(team, int64_t{256} << 20, /*chunks=*/64, /*rounds=*/1);
}

double CacheBandwidth(ThreadTeam* team) {
  return Bandwidth(team, int64_t{256} * 1024 * team->count(), team->count(), /*rounds=*/64);
}

ResidentMemory ReadResidentMemory() {
  ResidentMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long kilobytes = 0;
    if (std::sscanf(line.c_str(), "VmRSS: %ld kB", &kilobytes) == 1)
      memory.now_mb = static_cast<double>(kilobytes) * 1024e-6;
    if (std::sscanf(line.c_str(), "VmHWM: %ld kB", &kilobytes) == 1)
      memory.peak_mb = static_cast<double>(kilobytes) * 1024e-6;
  }
  return memory;
}

void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace coppice::bench
