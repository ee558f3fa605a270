// How a block of attention_tiles.cu brings q and the KV tiles of an item into shared memory. For .cu
// files.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/ops/attention_rows.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {

// Where a layer lies in a pool of P: PoolTile and PoolRow (kernel_types.h) with what they multiply
// known.
template <class P>
struct Planes {
  const P* k;                          // of block 0 and head 0
  int64_t v_behind_k, block, kv_head;  // distances, in elements

  DEV_FUNCTION static Planes Of(const DevicePool& pool, int layer) {
    const P* const k = PoolRow<const P>(pool, layer, /*value=*/false, 0, 0);
    return {k, PoolRow<const P>(pool, layer, /*value=*/true, 0, 0) - k,
            PoolRow<const P>(pool, layer, /*value=*/false, kBlockSize, 0) - k,
            PoolRow<const P>(pool, layer, /*value=*/false, 0, 1) - k};
  }
  // The vectors of K of a block and head, [kBlockSize, head_dim].
  DEV_FUNCTION const P* KOf(int32_t slot, int32_t head) const {
    return k + (slot / kBlockSize * block + head * kv_head);
  }
};

// S: a Shape of attention_tiles.cu.
template <class S>
struct TileLoads : RowTile<typename S::Type, S::kRows> {
  using T = typename S::Type;
  using Rows = RowTile<T, S::kRows>;
  using Rows::args, Rows::item, Rows::pool;
  using Rows::Fill, Rows::Finite, Rows::HoldsForToken, Rows::PackedRows, Rows::QueryOf;
  using Rows::SlotOf;

  // Eight threads load a token, 128 bytes of T at a time: each has kLoads tokens, kStep apart.
  static constexpr int kStep = S::kThreads / 8, kLoads = kKvTile / kStep;
  static constexpr int kPieces = (S::kDim + 63) / 64;

  const Planes<typename S::Element>& planes;
  T* query;  // [kRows, kStride]
  T* tiles;  // [kStages][K then V][kKvTile, kStride]

  DEV_FUNCTION int Thread() const { return dev::UnknownThread(); }
  DEV_FUNCTION T* Tile(int stage, bool value) const {
    return tiles + (stage * 2 + value) * S::kTile;
  }

  DEV_FUNCTION void LoadQuery() const {
    const int thread = dev::UnknownThread();
    constexpr int kPieces = S::kDim / 8;
    for (int i = thread; i < S::kRows * kPieces; i += S::kThreads) {
      const int packed = i / kPieces, dim = i % kPieces * 8;
      const bool valid = packed < PackedRows() && dim < pool.head_dim;
      dev::CopyAsync16(query + packed * S::kStride + dim,
                       valid ? QueryOf(packed) + dim : static_cast<const T*>(args.qkv), valid);
    }
  }

  // The slots of a thread's tokens, from token `first` of the KV index space on, whose loads are
  // under way together; -1 for tokens after the item's.
  DEV_FUNCTION void FindSlots(int32_t first, int32_t (&slot)[kLoads]) const {
    DEV_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int32_t token = first + i * kStep;
      slot[i] = token < item.kv_end ? SlotOf(token) : -1;
    }
  }
  DEV_FUNCTION static bool HasPiece(int dim) { return S::kDim % 64 == 0 || dim < S::kDim; }

  // Eight codes, times their scale, as values of T.
  DEV_FUNCTION static void Widen(const dev::Pack<int8_t, 8>& codes, float scale, T* values) {
    dev::Pack<T, 8> out;
    DEV_UNROLL
    for (int i = 0; i < 8; ++i)
      out.value[i] = dev::FromFloat<T>(dev::MulRn(dev::ToFloat(codes.value[i]), scale));
    dev::StorePack(values, out);
  }

  // LoadTile of codes, which has done all when it returns. The codes of K, and then of V, are under
  // way together.
  DEV_FUNCTION void WidenTile(int32_t first, int stage) const {
    const int thread = dev::UnknownThread(), t = thread / 8;
    int32_t slot[kLoads];
    FindSlots(first + t, slot);
    DEV_NO_UNROLL
    for (int value = 0; value < 2; ++value) {
      dev::Pack<int8_t, 8> codes[kLoads][kPieces];
      float scale[kLoads];
      DEV_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const bool seen = slot[i] >= 0;
        const int32_t from = seen ? slot[i] : 0, place = from % kBlockSize;
        const int8_t* const block =
            planes.KOf(from, item.kv_head) + (value == 0 ? 0 : planes.v_behind_k);
        const int8_t* const scales = block + kBlockSize * pool.head_dim;
        scale[i] = seen ? reinterpret_cast<const float*>(scales)[place] : 0.0f;
        const int8_t* const row = block + place * pool.head_dim;
        DEV_UNROLL
        for (int j = 0; j < kPieces; ++j) {
          const int dim = thread % 8 * 8 + j * 64;
          codes[i][j] = {};
          if (seen && dim < pool.head_dim) codes[i][j] = dev::LoadPack<8>(row + dim);
        }
      }
      DEV_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        DEV_UNROLL
        for (int j = 0; j < kPieces; ++j) {
          const int dim = thread % 8 * 8 + j * 64;
          if (!HasPiece(dim)) continue;
          Widen(codes[i][j], scale[i],
                Tile(stage, value != 0) + (t + i * kStep) * S::kStride + dim);
        }
      }
    }
  }

  // LoadTile of values of T, by asynchronous copies.
  DEV_FUNCTION void CopyTile(int32_t first, int stage) const {
    const int thread = dev::UnknownThread(), t = thread / 8;
    int32_t slot[kLoads];
    FindSlots(first + t, slot);
    DEV_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const bool seen = slot[i] >= 0;
      const int32_t from = seen ? slot[i] : 0;
      const T* const k = planes.KOf(from, item.kv_head) + from % kBlockSize * pool.head_dim;
      DEV_UNROLL
      for (int j = 0; j < kPieces; ++j) {
        const int dim = thread % 8 * 8 + j * 64;
        if (!HasPiece(dim)) continue;
        const bool valid = seen && dim < pool.head_dim;
        const T* const piece = valid ? k + dim : k;
        T* const to = Tile(stage, false) + (t + i * kStep) * S::kStride + dim;
        dev::CopyAsync16(to, piece, valid);
        dev::CopyAsync16(to + S::kTile, piece + planes.v_behind_k, valid);
      }
    }
  }

  // Tokens after the item's are zeros.
  DEV_FUNCTION void LoadTile(int32_t first, int stage) const {
    if constexpr (kCodes<typename S::Element>) {
      WidenTile(first, stage);
    } else {
      CopyTile(first, stage);
    }
  }

  // Of a KV tile that mixes requests. Each thread looks at what it has loaded.
  DEV_FUNCTION void KeepRequestsApart(int stage) const {
    const int thread = dev::UnknownThread();
    for (int t = thread / 8; t < kKvTile; t += S::kThreads / 8) {
      T* const k = Tile(stage, false) + t * S::kStride;
      T* const v = Tile(stage, true) + t * S::kStride;
      bool finite = true;
      for (int dim = thread % 8 * 8; dim < S::kDim; dim += 64) finite = finite && Finite(v + dim);
      if (HoldsForToken(finite)) continue;
      for (int dim = thread % 8 * 8; dim < S::kDim; dim += 64) {
        Fill(k + dim, NAN);
        Fill(v + dim, 0.0f);
      }
    }
  }
};

}  // namespace coppice::kernels::cuda
