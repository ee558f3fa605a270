// The operations in which the lanes of a warp meet.
#include <cstring>

#include "kernels/cuda/simulator/simt_fiber.h"

namespace coppice::kernels::cuda::simt {
namespace {

// Not memcpy, which the sanitizers intercept.
void CopyWords(uint32_t* to, const uint32_t* from, int count) {
  for (int i = 0; i < count; ++i) static_cast<volatile uint32_t*>(to)[i] = from[i];
}

float FloatOf(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
float ElementOf(WarpOp op, uint32_t pair, int high) {
  if (op == WarpOp::kMmaBf16) return FloatOf(high ? pair & 0xffff0000u : pair << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(high ? pair >> 16 : pair)));
}

// Fragments of m16n8k16 as the PTX ISA lays them out; words: a 0..3, b 4..5, d 6..9.
void RunMma(WarpOp op, Fiber* const (&lanes)[32], int lane) {
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4 + e / 2 * 8;
    const int column = lane % 4 * 2 + e % 2;
    double sum = FloatOf(lanes[lane]->in[6 + e]);
    for (int k = 0; k < 16; ++k) {
      const int quad = k % 8 / 2, half = k / 8;  // lane of the quad and half that hold k
      const uint32_t a = lanes[row % 8 * 4 + quad]->in[half * 2 + row / 8];
      const uint32_t b = lanes[column * 4 + quad]->in[4 + half];
      sum += double{ElementOf(op, a, k % 2)} * ElementOf(op, b, k % 2);
    }
    const float rounded = static_cast<float>(sum);
    __builtin_memcpy(&lanes[lane]->out[e], &rounded, sizeof rounded);
  }
}

int ShuffleSource(WarpOp op, int lane, uint32_t argument) {
  const int step = static_cast<int>(argument);
  int source = lane;
  if (op == WarpOp::kShuffle) source = step & 31;
  if (op == WarpOp::kShuffleXor) source = lane ^ step;
  if (op == WarpOp::kShuffleUp) source = lane - step;
  if (op == WarpOp::kShuffleDown) source = lane + step;
  return source < 0 || source > 31 ? lane : source;
}

void RunLane(const Warp& warp, WarpOp op, unsigned mask, int lane) {
  Fiber& fiber = *warp.lanes[lane];
  switch (op) {
    case WarpOp::kNone:
    case WarpOp::kSync:
      break;
    case WarpOp::kMmaBf16:
    case WarpOp::kMmaF16:
      if (mask != 0xffffffffu) Fail("mma needs all 32 lanes", *fiber.home);
      RunMma(op, warp.lanes, lane);
      break;
    case WarpOp::kBallot:
      fiber.out[0] = 0;
      for (int other = 0; other < 32; ++other) {
        if ((mask >> other & 1) && warp.lanes[other]->in[0] != 0) fiber.out[0] |= 1u << other;
      }
      break;
    case WarpOp::kAddresses:
      if (mask != 0xffffffffu) Fail("ldmatrix needs all 32 lanes", *fiber.home);
      for (int i = 0; i < 4; ++i) {
        CopyWords(fiber.out + 2 * i, warp.lanes[8 * i + static_cast<int>(fiber.in[2])]->in, 2);
      }
      break;
    case WarpOp::kQuad:
      if (mask != 0xffffffffu) Fail("wgmma needs all 32 lanes", *fiber.home);
      for (int i = 0; i < 4; ++i) CopyWords(fiber.out + 4 * i, warp.lanes[lane / 4 * 4 + i]->in, 4);
      break;
    default: {
      const int source = ShuffleSource(op, lane, fiber.in[0]);
      if (!(mask >> source & 1)) Fail("shuffle reads a lane outside of the mask", *fiber.home);
      CopyWords(fiber.out, warp.lanes[source]->in + 1, 2);
    }
  }
}

}  // namespace

bool TryReleaseWarp(Fiber* fiber) {
  Warp& warp = fiber->home->warps[fiber->index / 32];
  const uint32_t needed = fiber->mask & warp.live;
  if ((warp.waiting & needed) != needed) return false;
  for (int i = 0; i < 32; ++i) {
    if (!(needed >> i & 1)) continue;
    const Fiber& other = *warp.lanes[i];
    if (other.op != fiber->op || other.mask != fiber->mask) return false;
  }
  for (int i = 0; i < 32; ++i) {
    if (needed >> i & 1) RunLane(warp, fiber->op, needed, i);
  }
  ++warp.generation;
  warp.waiting &= ~needed;
  for (int i = 0; i < 32; ++i) {
    if ((needed >> i & 1) && warp.lanes[i] != fiber) MakeReady(warp.lanes[i]);
  }
  return true;
}

void MeetWarp(WarpOp op, unsigned mask, const uint32_t* in, int in_words, uint32_t* out,
              int out_words, const char* file, int line) {
  CheckWaited();
  Fiber* fiber = Current();
  fiber->op = op;
  fiber->mask = mask;
  fiber->file = file;
  fiber->line = line;
  if (!(mask >> fiber->lane & 1)) {
    Fail("warp operation by a lane that its mask leaves out", *fiber->home);
  }
  CopyWords(fiber->in, in, in_words);
  fiber->home->warps[fiber->index / 32].waiting |= 1u << fiber->lane;
  if (!TryReleaseWarp(fiber)) RunAnother();
  fiber->file = nullptr;
  CopyWords(out, fiber->out, out_words);
}

void WarpBarrier(unsigned mask, const char* file, int line) {
  Fiber* fiber = Current();
  Warp& warp = fiber->home->warps[fiber->index / 32];
  char* sync = &warp.sync[warp.generation & 1];
  TsanRelease(sync);
  MeetWarp(WarpOp::kSync, mask, nullptr, 0, nullptr, 0, file, line);
  TsanAcquire(sync);
}

}  // namespace coppice::kernels::cuda::simt
