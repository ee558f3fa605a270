#!/usr/bin/env python3
"""Plants one mistake after another in the CUDA kernels and in what launches them, and shows that the tests in simulation find each.

  mutants.py BUILD_DIR [WORD]

BUILD_DIR: a build of the preset cuda-sim that has cuda_kernels_test, cuda_backend_test, cuda_device_test and cuda_exact_test. WORD: only the mutants whose name has it. A mutant replaces one
text, which must occur exactly once; only what includes the file is compiled again, plainly or with the thread sanitizer, and is
linked in front of the kernels of the build. Nothing in the tree is written. Exit status 1 when a mutant survives."""
import dataclasses
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
KERNELS = ROOT / "kernels/cuda"


# What to compile for a header.
UNITS = {"attention_rows.h": ("attention_tiles.cu",), "list_select.h": ("shortlists.cu",), "gumbel_noise.h": ("shortlists.cu",),
         "level_draws.h": ("choose_level.cu",)}


@dataclasses.dataclass
class Mutant:
    name: str
    file: str  # in kernels/cuda
    old: str
    new: str
    tests: str  # the filter of GoogleTest
    thread_sanitizer: bool = False
    units: tuple = ()  # what to compile when the file is a header that UNITS does not have
    program: str = "cuda_kernels_test"  # other ones: for host code, linked as the build links them, no thread sanitizer
    overlap: bool = False  # every launch counts as one that overlaps


ATTENTION = "CudaAttention.*"
TILES = "CudaAttentionTiles.EveryGroup:CudaAttentionTiles.LongChains*:CudaAttentionTiles.MixedRequests"
GRAPHS = "*BackendGraphTest.*/F32:-*SizeOfBucket*"
LISTS = "CudaShortlists.*-CudaShortlists.*BigVocabulary"
LISTS_SMALL = "CudaShortlists.SmallMixedLists"
LEVELS = "CudaDraftLevels.*"
TILES_SMALL = "CudaAttentionTiles.LongChains*:CudaAttentionTiles.MixedRequests"
WIDE = "CudaAttentionTiles.WideHeads"
WIDE_SMALL = "CudaAttentionWide.SmallSplits"
WIDE_RING = "CudaAttentionWideShapes.Splits*"
WIDE_HEADS = "CudaAttentionWideShapes.Both*"
WGMMA = "CudaAttentionWide*-*.Splits*:*.Both*"
SKINNY = "CudaGemmSkinny.*"
SKINNY_SMALL = "CudaGemmSkinny.Splits*:CudaGemmSkinny.OneRun*"
ONE_SHOT_SMALL = "CudaOneShot.SmallSums:CudaOneShot.ARankMay*"
MUTANTS = (
    # Barriers: values may well be right on a CPU, but the thread sanitizer sees the race.
    Mutant("norm: no barrier before the sums of the warps", "norm.cu", "sums[warp] = value;\n  __syncthreads();",
           "sums[warp] = value;", "CudaNorm.ZeroRow*:CudaNorm.ManyRows*", thread_sanitizer=True),
    Mutant("attention: no barrier after the query", "attention.cu", "* scale;\n  }\n  __syncthreads();", "* scale;\n  }",
           "CudaAttention.MixedTypes", thread_sanitizer=True),
    Mutant("attention: no barrier before the merge", "attention.cu", "state.sum[j][i];\n    }\n  }\n  __syncthreads();",
           "state.sum[j][i];\n    }\n  }", "CudaAttention.MixedTypes", thread_sanitizer=True),
    Mutant("gather: a row is written before it is read", "gather.cu",
           "if (first + i < needs) moved[i] = values[need_row[first + i] * row_words + c];",
           "if (first + i < needs) moved[i] = values[need_row[first + i] * row_words + c];"
           " if (first + i < needs) values[(needs - 1 - first - i) * row_words + c] = moved[i];",
           "CudaGather.*"),
    Mutant("gather: stops where the first row is in its place", "gather.cu", "need_row[needs - 1] == needs - 1",
           "need_row[0] == 0", "CudaGather.*"),
    Mutant("gather: the second matrix by the columns of the first", "gather.cu", "const GatherArgs::Of of = second ? args.of[1] : args.of[0];",
           "GatherArgs::Of of = second ? args.of[1] : args.of[0]; of.row_bytes = args.of[0].row_bytes;", "CudaGather.Two*"),
    Mutant("gather: 16 bytes at a time where only the first has them", "gather.cu", "first % 16 == 0 && second % 16 == 0",
           "first % 16 == 0", "CudaGather.Two*"),
    # Launches that overlap.
    *(Mutant(f"{file}: does not wait for what ran before", f"{file}.cu", f"{entry}\n  dev::WaitForPrevious();", entry, test, overlap=True)
      for file, entry, test in (
          ("attention", "AttendRows(const DeviceStep* step, AttentionArgs args, DevicePool pool) {", "CudaAttention.MixedTypes"),
          ("attention_tiles", "                int tile_class) {", "CudaAttentionTiles.WideHeads"),
          ("commit", "CopySlots(const DeviceStep* step, DevicePool pool) {", "CudaCommit.*"),
          ("choose_level", "ChooseEachLevel(const DeviceLevels* levels, const DeviceLists* lists) {", "CudaDraftLevels.*"),
          ("place_level", "    PlaceEachLevel(const DeviceLevels* levels, const DeviceStep* step, const DeviceWork* work) {", "CudaDraftLevels.*"),
          ("row_sums", "SumChunks(const DeviceLists* lists, LogitRows rows) {", "CudaShortlists.*"),
          ("shortlists", "ListEachPiece(const DeviceLists* lists, LogitRows rows) {", "CudaShortlists.*"),
          ("embed", "CopyRows(const DeviceStep* step, EmbedArgs args) {", "CudaEmbed.*"),
          ("gather", "MoveRows(const DeviceStep* step, GatherArgs args, unsigned blocks_of_first) {", "CudaGather.*"),
          ("norm", "AddNormRows(AddNormArgs args) {", "CudaNorm.*"),
          ("rope", "RotateAndStore(const DeviceStep* step, RopeArgs args, DevicePool pool) {", "CudaRope.Mixed*"),
          ("swiglu", "GateRows(const T* gate_up, T* out, int64_t columns) {", "CudaSwiGlu.ManyRows"))),
    # Visibility.
    Mutant("attention: sees one token too few", "attention.cu", "position < view.length;", "position < view.length - 1;",
           ATTENTION),
    Mutant("attention: sees one token too many", "attention.cu", "prefix + end - begin}", "prefix + end - begin + 1}",
           ATTENTION),
    Mutant("attention: the chain starts one token late", "attention.cu", "if (position >= prefix) return",
           "if (position > prefix) return", ATTENTION),
    Mutant("attention: the table of the segment before", "attention.cu",
           "step.table_begin[step.segment[row]]", "step.table_begin[0 * step.segment[row]]", ATTENTION),
    # Heads and planes.
    Mutant("attention: K and V change places", "attention.cu", "/*value=*/false, slot, kv_head)",
           "/*value=*/true, slot, kv_head)", ATTENTION),
    Mutant("attention: KV head of the neighbour", "attention.cu", "head / (args.q_heads / pool.kv_heads);",
           "head % pool.kv_heads;", ATTENTION),
    Mutant("attention: the layer before", "attention.cu", "query, pool, args.layer, kv_head", "query, pool, 0, kv_head",
           ATTENTION),
    Mutant("pool: heads and places change places", "kernel_types.h", "(tile * kBlockSize + slot % kBlockSize)",
           "(tile * kBlockSize + (kBlockSize - 1 - slot % kBlockSize))",
           "CudaRope.Mixed*:CudaAttention.Mixed*", units=("rope.cu", "attention.cu")),
    Mutant("pool: K and V planes of a layer apart", "kernel_types.h", "int64_t{2} * layer + value",
           "int64_t{pool.layers} * value + layer", "CudaRope.Mixed*:CudaAttention.Mixed*", units=("rope.cu", "attention.cu")),
    # Softmax.
    Mutant("attention: merge without the weights of the warps", "attention.cu",
           "sums[w * kMaxDim + d] * dev::Exp2(maxima[w] - max)", "sums[w * kMaxDim + d]", ATTENTION),
    Mutant("attention: totals without the weights of the warps", "attention.cu",
           "totals[w] * dev::Exp2(maxima[w] - max)", "totals[w]", ATTENTION),
    Mutant("attention: the sum is not corrected for a new maximum", "attention.cu", "state->sum[j][i] *= correction;",
           "state->sum[j][i] *= 1.0f;", ATTENTION),
    Mutant("attention: the total is not corrected for a new maximum", "attention.cu",
           "state->total * correction + weight", "state->total + weight", ATTENTION),
    Mutant("attention: base e instead of base 2", "attention.cu", "kLog2E = 1.44269504f", "kLog2E = 1.0f", ATTENTION),
    Mutant("attention: no maximum is taken off", "attention.cu", "dev::Exp2(score - max)", "dev::Exp2(score)", ATTENTION),
    Mutant("attention: a row that sees nothing divides by zero", "attention.cu", "all == 0.0f ? 0.0f : sum / all",
           "sum / all", ATTENTION),
    # Attention by tiles: the pipeline of copies.
    Mutant("tiles: no barrier after the copies", "attention_tiles.cu", "dev::CopyWait<1>();\n      __syncthreads();",
           "dev::CopyWait<1>();", TILES_SMALL, thread_sanitizer=True),
    Mutant("tiles: a stage is overwritten while it is read", "attention_tiles.cu",
           "__syncthreads();  // the next copies overwrite this stage", "", TILES_SMALL, thread_sanitizer=True),
    Mutant("tiles: the copies are not waited for", "attention_tiles.cu", "dev::CopyWait<1>();", "", TILES),
    Mutant("tiles: waits for a group too early", "attention_tiles.cu", "dev::CopyWait<1>();", "dev::CopyWait<2>();", TILES),
    Mutant("tiles: the next tile goes to the stage that is read", "attention_tiles.cu",
           "LoadTile(first + kKvTile, 1 - stage)", "LoadTile(first + kKvTile, stage)", TILES),
    Mutant("tiles: V of the other stage", "attention_tiles.cu", "AddValues(Tile(stage, true)", "AddValues(Tile(1 - stage, true)",
           TILES),
    Mutant("tiles: K in the place of V", "attention_tiles.cu", "AddValues(Tile(stage, true)", "AddValues(Tile(stage, false)",
           TILES),
    Mutant("tiles: tokens behind the last are read", "attention_tiles.cu", "const bool seen = first + t < item.kv_end;",
           "const bool seen = true;", TILES),
    # Fragments.
    Mutant("tiles: K fragments with tokens and dims exchanged", "attention_tiles.cu",
           "(TokenWarp() * S::kTokens + lane / 16 * 8 + lane % 8) * S::kStride + lane / 8 % 2 * 8",
           "(TokenWarp() * S::kTokens + lane / 8 % 2 * 8 + lane % 8) * S::kStride + lane / 16 * 8", TILES),
    Mutant("tiles: q fragments with rows and dims exchanged", "attention_tiles.cu",
           "(RowWarp() * 16 + lane % 16) * S::kStride + lane / 16 * 8",
           "(RowWarp() * 16 + lane / 16 * 8 + lane % 8) * S::kStride + lane / 8 % 2 * 8", TILES),
    Mutant("tiles: rows of the weights exchanged", "attention_tiles.cu", "dev::PackPair<T>(weight[2 * t][2], weight[2 * t][3])",
           "dev::PackPair<T>(weight[2 * t][0], weight[2 * t][1])", TILES),
    Mutant("tiles: V fragments one row off", "attention_tiles.cu", "(TokenWarp() * S::kTokens + lane % 16) * S::kStride",
           "(TokenWarp() * S::kTokens + (lane + 1) % 16) * S::kStride", TILES),
    Mutant("tiles: warps that share rows sum the same dims", "attention_tiles.cu", "DimWarp() * S::kDims + lane / 16 * 8",
           "lane / 16 * 8", WIDE),
    Mutant("tiles: sums of warps that share rows go to the same dims", "attention_tiles.cu",
           "DimWarp() * S::kDims + j * 8", "j * 8", WIDE),
    Mutant("tiles: f16 by the products of bf16", "attention_tiles.cu", "LaunchDim<dev::f16>", "LaunchDim<dev::bf16>",
           "CudaAttentionTiles.F16*"),
    Mutant("work list: row tiles of a class that is not launched", "work_list.cc", "kTileRows[shape.classes - 1]",
           "kTileRows[kTileClasses - 1]", WIDE),
    # Masks and tokens.
    Mutant("tiles: masks off by one bit", "attention_rows.h", "(first_token + lane % 4 * 2);",
           "(first_token + lane % 4 * 2 + 1);", TILES),
    Mutant("tiles: the first masked tile is not masked", "attention_tiles.cu", "first / kKvTile >= item.mask_tile",
           "first / kKvTile > item.mask_tile", TILES),
    Mutant("tiles: masks of the wrong row", "attention_rows.h", "packed / Group() * item.mask_words",
           "packed % item.rows * item.mask_words", TILES),
    Mutant("tiles: the chain starts one token late", "attention_rows.h", "if (token >= item.prefix) return",
           "if (token > item.prefix) return", TILES),
    Mutant("tiles: heads of the groups exchanged", "attention_rows.h", "item.kv_head * Group() + packed % Group()",
           "packed % Group() * pool.kv_heads + item.kv_head", TILES),
    Mutant("work list: a row does not see itself", "work_list.cc", "i < plan.chain_begin[r + 1]; ++i) {\n      set",
           "i < plan.chain_begin[r + 1] - 1; ++i) {\n      set", TILES + ":CudaWorkList.Covers*"),
    Mutant("work list: prefill rows see the next token", "work_list.cc", "t < plan.prefix_length(r); ++t) set(t);",
           "t < std::min(plan.prefix_length(r) + 1, item->prefix); ++t) set(t);", TILES + ":CudaWorkList.Covers*"),
    Mutant("work list: partial results overlap", "work_list.cc", "int64_t{splits} * PartialFloats", "int64_t{1} * PartialFloats",
           "CudaWorkList.Covers*"),
    Mutant("work list: the last worker gets what cuts cost", "work_list.cc", "(others - 1) * kItemCost : 0)", "0 : 0)",
           "CudaWorkList.Balances*"),
    # Merges.
    Mutant("tiles: merge without the weights of the parts", "attention_rows.h",
           "const float weight = dev::Exp2(stats[i * stat_stride] - max);", "const float weight = 1.0f;", TILES),
    Mutant("tiles: merge divides by the last total", "attention_rows.h", "total += stats[i * stat_stride + 1] * weight;",
           "total = stats[i * stat_stride + 1] * weight;", TILES),
    Mutant("tiles: counters stay", "attention_rows.h", "if (thread == 0) merging.counters[item.merge] = 0;", "", TILES),
    Mutant("tiles: the first block to arrive merges", "attention_rows.h",
           "if (*arrived + 1 != static_cast<uint32_t>(item.splits)) return;", "if (*arrived != 0) return;", TILES_SMALL,
           thread_sanitizer=True),  # the counter is zero again, so every block merges, the last one rightly
    Mutant("tiles: no barrier before the arrival is counted", "attention_rows.h",
           "sync();\n    if (thread == 0) *arrived", "if (thread == 0) *arrived", TILES_SMALL, thread_sanitizer=True),
    Mutant("tiles: no barrier after the arrival is counted", "attention_rows.h",
           "item.merge, 1);\n    sync();", "item.merge, 1);", TILES_SMALL, thread_sanitizer=True),
    Mutant("tiles: the count of arrivals orders no memory", "device/simt.h", "__ATOMIC_ACQ_REL", "__ATOMIC_RELAXED", TILES_SMALL,
           thread_sanitizer=True, units=("attention_tiles.cu",)),
    # Attention by wgmma and the copy engine: the ring.
    Mutant("wide: a stage is released before it is read", "attention_sm90a.cu",
           "      dev::WarpgroupBegin();\n      DEV_UNROLL\n      for (int t = 0; t < kKvTile / 16; ++t) {\n        const unsigned char* v",
           "      __syncwarp();\n      if (Lane() == 0) dev::BarrierArrive(ring.Empty(stage));\n"
           "      dev::WarpgroupBegin();\n      DEV_UNROLL\n      for (int t = 0; t < kKvTile / 16; ++t) {\n        const unsigned char* v", WIDE_RING),
    Mutant("wide: tiles are not waited for", "attention_sm90a.cu", "dev::BarrierWait(ring.Full(stage), place->parity);", "", WGMMA),
    Mutant("wide: waits for the phase before", "attention_sm90a.cu", "dev::BarrierWait(ring.Full(stage), place->parity);",
           "dev::BarrierWait(ring.Full(stage), place->parity ^ 1);", WGMMA),
    Mutant("wide: the loading warp waits for no reader", "attention_sm90a.cu",
           "dev::BarrierWait(ring.Empty(place->stage), place->parity ^ 1);", "", WIDE_RING),
    Mutant("wide: parities change one place early", "attention_sm90a.cu", "if (stage == 0) parity ^= 1;",
           "if (stage == kStages - 1) parity ^= 1;", WIDE_RING),
    Mutant("wide: half of the bytes are expected", "attention_sm90a.cu", "ring.Full(stage), S::kStageBytes)",
           "ring.Full(stage), S::kStageBytes / 2)", WGMMA),
    Mutant("wide: copied tokens are not shown", "attention_sm90a.cu", "dev::ShowToAsync();", "", WGMMA),
    Mutant("wide: copied tokens are not waited for", "attention_sm90a.cu", "dev::CopyWait<0>();", "", WGMMA),
    Mutant("wide: the warp does not meet before it gives a stage back", "attention_sm90a.cu",
           "__syncwarp();\n      if (Lane() == 0) dev::BarrierArrive(ring.Empty(stage));",
           "if (Lane() == 0) dev::BarrierArrive(ring.Empty(stage));", WIDE_RING),
    Mutant("wide: barriers are not made ready", "attention_sm90a.cu", "dev::BarriersReady();", "", WGMMA),
    Mutant("wide: no barrier after the barriers are made", "attention_sm90a.cu", "ring.Init();\n  __syncthreads();", "ring.Init();", WGMMA),
    Mutant("wide: consumers do not meet before the arrival is counted", "attention_sm90a.cu",
           "dev::BarrierWait(ring.Meeting(), meeting);", "", WIDE_SMALL, thread_sanitizer=True),
    # Its layouts.
    Mutant("wide: tokens are not swizzled", "attention_sm90a.cu", "(chunk ^ t % 8) * 16", "chunk * 16", WGMMA),
    Mutant("wide: K of the first 16 dims again", "attention_sm90a.cu", "+ d % 4 * 32;", "+ d % 2 * 32;", WGMMA),
    Mutant("wide: V of the first 16 tokens again", "attention_sm90a.cu", "Panel(stage, true, 0) + t * 16 * kRowBytes",
           "Panel(stage, true, 0) + t / 2 * 16 * kRowBytes", WGMMA),
    Mutant("wide: the second half of the dims of V is the first", "attention_sm90a.cu", "dev::MatrixOf(v, kPanelBytes)",
           "dev::MatrixOf(v, 0)", WIDE_HEADS),
    Mutant("wide: V is not transposed", "attention_sm90a.cu", "/*kTransposed=*/true", "/*kTransposed=*/false", WGMMA),
    Mutant("wide: q fragments with rows and dims exchanged", "attention_sm90a.cu", "q[d][half + 2] = valid ? pairs[4] : 0;",
           "q[d][half + 2] = valid ? pairs[2] : 0;", WGMMA),
    Mutant("wide: blocks of the neighbouring head", "attention_sm90a.cu", "* pool.kv_heads + item.kv_head;\n      const int row",
           "* pool.kv_heads + 0 * item.kv_head;\n      const int row", WIDE_HEADS),
    Mutant("wide: a tile that ends behind the prefix is copied by blocks", "attention_sm90a.cu",
           "first + kKvTile <= item.prefix && first + kKvTile <= item.kv_end", "first < item.prefix", WGMMA),
    Mutant("wide: products are not waited for", "attention_sm90a.cu",
           "dev::WarpgroupWait<0>();\n      if (first / kKvTile", "if (first / kKvTile", WGMMA),
    Mutant("wide: a run of products is not begun", "attention_sm90a.cu",
           "float score[kKvTile / 8][4] = {};\n      dev::WarpgroupBegin();", "float score[kKvTile / 8][4] = {};", WGMMA),
    # Products of few rows: the pipeline of copies.
    Mutant("skinny: the copies are not waited for", "gemm_skinny.cu", "dev::CopyWait<S::kStages - 2>();", "", SKINNY),
    Mutant("skinny: waits for a group too early", "gemm_skinny.cu", "dev::CopyWait<S::kStages - 2>();",
           "dev::CopyWait<S::kStages - 1>();", SKINNY),
    Mutant("skinny: no barrier after the copies", "gemm_skinny.cu",
           "__syncthreads();  // the copies of all threads are there, and stage `ahead` is read", "", SKINNY_SMALL,
           thread_sanitizer=True),
    Mutant("skinny: a stage is overwritten before it is read", "gemm_skinny.cu", "* kDepth, ahead);", "* kDepth, stage);", SKINNY),
    Mutant("skinny: the sums overwrite a stage that is read", "gemm_skinny.cu", "__syncthreads();  // shared memory is free", "",
           SKINNY_SMALL, thread_sanitizer=True),
    Mutant("skinny: no barrier before the rows are stored", "gemm_skinny.cu",
           "output + e / 2 * 8] = sums.value[j][e];\n    }\n    __syncthreads();",
           "output + e / 2 * 8] = sums.value[j][e];\n    }", SKINNY_SMALL, thread_sanitizer=True),
    Mutant("skinny: inputs behind the last are read", "gemm_skinny.cu", "const bool inside = input < args.inputs;",
           "const bool inside = true;", SKINNY),
    # Fragments.
    Mutant("skinny: weight fragments with outputs and inputs exchanged", "gemm_skinny.cu",
           "(Warp() * 16 + lane % 16) * kStride + lane / 16 * 8", "(Warp() * 16 + lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 8",
           SKINNY),
    Mutant("skinny: weight fragments of the next row", "gemm_skinny.cu", "(Warp() * 16 + lane % 16) * kStride",
           "(Warp() * 16 + (lane + 1) % 16) * kStride", SKINNY),
    Mutant("skinny: x fragments of the first half twice", "gemm_skinny.cu", "lane % 8) * kStride + lane / 8 * 8;",
           "lane % 8) * kStride + lane / 8 % 2 * 8;", SKINNY),
    Mutant("skinny: outputs g and g + 8 exchanged", "gemm_skinny.cu", "output + e / 2 * 8]", "output + (1 - e / 2) * 8]", SKINNY),
    # Splits.
    Mutant("skinny: splits are added in the order of arrival", "gemm_skinny.cu", "dev::LoadPack<4>(Partial(split, j))",
           "dev::LoadPack<4>(Partial((split + static_cast<int>(blockIdx.y)) % args.splits, j))", SKINNY),
    Mutant("skinny: a stage belongs to no split", "gemm_skinny.cu", "int64_t{total} * (split + 1) / args.splits",
           "int64_t{total} / args.splits * (split + 1)", SKINNY),
    Mutant("skinny: the first block to arrive adds", "gemm_skinny.cu",
           "if (*arrived + 1 != static_cast<uint32_t>(args.splits)) return false;", "if (*arrived != 0) return false;",
           SKINNY_SMALL, thread_sanitizer=True),
    Mutant("skinny: counters stay", "gemm_skinny.cu", "if (Thread() == 0) args.counters[blockIdx.x] = 0;", "", SKINNY),
    Mutant("skinny: no barrier before the arrival is counted", "gemm_skinny.cu",
           "__syncthreads();\n    if (Thread() == 0) *arrived", "if (Thread() == 0) *arrived", SKINNY_SMALL, thread_sanitizer=True),
    Mutant("skinny: no barrier after the arrival is counted", "gemm_skinny.cu", "blockIdx.x, 1);\n    __syncthreads();",
           "blockIdx.x, 1);", SKINNY_SMALL, thread_sanitizer=True),
    Mutant("skinny: the count of arrivals orders no memory", "device/simt.h", "__ATOMIC_ACQ_REL", "__ATOMIC_RELAXED", SKINNY_SMALL,
           thread_sanitizer=True, units=("gemm_skinny.cu",)),
    Mutant("skinny: the bias of the first outputs", "gemm_skinny.cu", "args.bias[output + first + i]", "args.bias[first + i]", SKINNY),
    Mutant("skinny: the ups of the tile before", "gemm_skinny.cu", "Columns() + FirstColumn() + i - kGates",
           "Columns() + FirstColumn() + i - kTile", SKINNY),
    Mutant("skinny: ups where gates belong", "gemm_skinny.cu", "!args.gated || i < kGates", "!args.gated || i >= kGates", SKINNY),
    Mutant("skinny: gates meet ups that are not rounded", "gemm_skinny.cu", "up = dev::ToFloat(dev::FromFloat<bf16>(up));", "", SKINNY),
    Mutant("skinny: ups have the bias of the gates", "gemm_skinny.cu", "up += bias[Columns() + i];", "up += bias[i];", SKINNY),
    Mutant("tiles: no barrier before the warps are merged", "attention_tiles.cu",
           "    __syncthreads();\n    for (int i = Thread(); i < 16 *", "    for (int i = Thread(); i < 16 *", TILES_SMALL,
           thread_sanitizer=True),
    Mutant("tiles: no barrier between items", "attention_tiles.cu",
           "__syncthreads();  // the next item overwrites shared memory", "", TILES_SMALL, thread_sanitizer=True),
    Mutant("tiles: the total is not corrected for a new maximum", "attention_rows.h",
           "state->total[half] * correction + total", "state->total[half] + total", TILES),
    # Elementwise.
    Mutant("norm: the addend stays out of the residual", "norm.cu", "dev::StorePack(x + c, in);", "", "CudaNorm.*"),
    Mutant("norm: epsilon outside of the root", "norm.cu", "sqrtf(mean + args.epsilon)", "(sqrtf(mean) + args.epsilon)",
           "CudaNorm.*"),
    Mutant("norm: the last warp is left out", "norm.cu", "i < kWarps; ++i) total", "i < kWarps - 1; ++i) total", "CudaNorm.*"),
    Mutant("bias: packs over the end of a row", "norm.cu", "const bool whole = columns % 4 == 0;",
           "const bool whole = columns % 2 == 0 || columns % 4 == 0 || columns > 8;", "CudaNorm.AddsBias"),
    Mutant("rope: interleaved instead of half-split", "rope.cu", "LoadWithBias(row, args.bias, column + half)",
           "LoadWithBias(row, args.bias, column + kPack)", "CudaRope.*"),
    Mutant("rope: the bias is rounded before it is added", "rope.cu", "dev::ToFloat(values.value[i]) + added.value[i]",
           "dev::ToFloat(values.value[i]) + dev::ToFloat(dev::FromFloat<T>(added.value[i]))", "CudaRope.AddsABias"),
    Mutant("rope: V without its bias", "rope.cu", "LoadWithBias(row, args.bias, (heads + head) * dim + offset)",
           "LoadWithBias(row, nullptr, (heads + head) * dim + offset)", "CudaRope.AddsABias"),
    Mutant("rope: the second half has the bias of the first", "rope.cu", "LoadWithBias(row, args.bias, column + half)",
           "LoadWithBias(row + half, args.bias, column)", "CudaRope.AddsABias"),
    Mutant("rope: rotates the other way", "rope.cu", "a * cos.value[i] - b * sin.value[i]",
           "a * cos.value[i] + b * sin.value[i]", "CudaRope.*"),
    Mutant("rope: q heads are stored as K", "rope.cu", "slot, head - args.q_heads) + offset", "slot, 0) + offset",
           "CudaRope.*"),
    Mutant("rope: angles of the next position", "rope.cu", "int64_t{step->position[r]} * half",
           "(int64_t{step->position[r]} + 1) * half", "CudaRope.*"),
    Mutant("rope: an f16 that overflows stays infinite", "rope.cu", "x + (x - x)", "x", "CudaRope.*"),
    Mutant("commit: source and destination change places", "commit.cu",
           "dev::StorePack(destination, dev::LoadPack<kPack>(source));",
           "dev::StorePack(const_cast<T*>(source), dev::LoadPack<kPack>(destination));", "CudaCommit.*"),
    Mutant("commit: only K", "commit.cu", "blockIdx.y % 2 != 0", "false", "CudaCommit.*"),
    Mutant("commit: only as many copies as there are blocks", "commit.cu", "c += static_cast<int>(gridDim.x)", "c += count",
           "CudaCommit.*"),
    Mutant("embed: the row behind the matrix counts as held", "embed.cu", "row < args.matrix_rows", "row <= args.matrix_rows",
           "CudaEmbed.*"),
    Mutant("embed: rows that are not held keep what was there", "embed.cu", "held ? row : 0) * args.columns;",
           "held ? row : 0) * args.columns; if (!held) return;", "CudaEmbed.*"),
    Mutant("swiglu: gate and up change places", "swiglu.cu",
           "Silu(dev::ToFloat(gate.value[i])) * dev::ToFloat(up.value[i])",
           "Silu(dev::ToFloat(up.value[i])) * dev::ToFloat(gate.value[i])", "CudaSwiGlu.*"),
    Mutant("swiglu: overflows for large gates", "silu.h", "return (gate >= 0.0f ? gate : gate * e) / (1.0f + e);",
           "const float f = expf(gate); return gate * f / (1.0f + f) + 0 * e;", "CudaSwiGlu.*",
           units=("swiglu.cu",)),
    # What is joined with a product. The CPU backend joins nothing.
    Mutant("joined: SwiGLU with a product of another tensor", "pass_products.cc", "if (y.data != gate_up.data || product->accumulate",
           "if (product->accumulate", "*BackendOpsTest.WhatFollowsA*", program="cuda_backend_test"),
    Mutant("joined: SwiGLU of what a product adds", "pass_products.cc",
           "if (y.data != gate_up.data || product->accumulate ||", "if (y.data != gate_up.data ||",
           "*BackendOpsTest.WhatFollowsA*", program="cuda_backend_test"),
    Mutant("joined: the bias is added twice", "pass_products.cc", "product->adds_bias = false;", "",
           "*BackendOpsTest.WhatFollowsA*", program="cuda_backend_test"),
    Mutant("joined: the product keeps its launch for SwiGLU", "cuda_ops.cc",
           "recorded_.back() = ArgsOf(*product, rows_);\n    return;", "recorded_.back() = ArgsOf(*product, rows_);",
           "*StepCostTest.OneCopy*", program="cuda_device_test"),
    # Host code: graphs, padding, uploads.
    Mutant("graphs: one is replayed for another size", "graph_cache.cc", "if (entry->list != list) continue;",
           "if (entry->list.ops.size() != list.ops.size()) continue;", GRAPHS, program="cuda_backend_test"),
    Mutant("graphs: one is replayed for other addresses", "device_op.h",
           "bool operator==(const SwiGluOp&) const = default;",
           "bool operator==(const SwiGluOp& o) const { return rows == o.rows && columns == o.columns; }", GRAPHS,
           program="cuda_backend_test", units=("graph_cache.cc", "device_op.cc", "cuda_ops.cc", "cuda_backend.cc")),
    Mutant("graphs: one is replayed after its block has moved", "graph_cache.cc", "if (entry->list != list) continue;",
           "if (entry->list.ops != list.ops || entry->list.step.rows != list.step.rows) continue;", GRAPHS,
           program="cuda_backend_test"),
    Mutant("graphs: one is replayed for more lists than its grids have room for", "graph_cache.cc",
           "if (entry->list != list) continue;",
           "if (entry->list.step != list.step || entry->list.work != list.work || entry->list.ops != list.ops) continue;",
           "*StepCostTest.Shortlists*", program="cuda_device_test"),
    Mutant("padding: rows write to a slot of a request", "step_upload.cc", "layout->Add(plan.slot, rows)",
           "layout->Add(plan.slot, rows, kBlockSize)", GRAPHS, program="cuda_backend_test"),
    Mutant("padding: the head is of as many rows as there are", "cuda_ops.cc", "rows_ = shape_.needs;",
           "rows_ = static_cast<int64_t>(plan_->needs.size());", "*StepCostTest.Graphs*", program="cuda_device_test"),
    Mutant("upload: the block of a queued copy is written", "upload_block.h", "next_ = 1 - next_;", "next_ = 0;",
           "StepUploadTest.*", program="cuda_device_test", units=("step_upload.cc", "upload_block.cc")),
    # Shortlists. A wrong choice among equal keys, or by one, is found against sorted rows.
    Mutant("lists: of equal logits the higher id wins", "list_select.h", "keys[j] == key && indices[j] < index",
           "keys[j] == key && indices[j] > index", LISTS),
    Mutant("lists: at the cut, of equal keys the highest ids", "list_select.h", "(other == key && index < end)",
           "(other == key && index >= end)", LISTS),
    Mutant("lists: one tie too few", "list_select.h", "cut.end = end + 1;", "cut.end = end;", LISTS),
    Mutant("lists: one token too few", "list_select.h", "if (rank >= want) continue;", "if (rank >= want - 1) continue;", LISTS),
    Mutant("lists: the threads' maxima are taken for all keys", "list_select.h", "if (taken <= room) return cut;", "return cut;",
           LISTS),
    Mutant("lists: the search ends at the first count that suffices", "list_select.h", "if (n == want) break;",
           "if (n >= want) break;", LISTS),
    Mutant("lists: -0 is less than 0", "list_select.h", "if (bits == 0x80000000u) return 0x80000000u;", "", LISTS),
    Mutant("lists: -inf is a key", "list_select.h", "if (!(value > __uint_as_float(0xff800000u))) return 0;",
           "if (!(value >= __uint_as_float(0xff800000u))) return 0;", LISTS),
    Mutant("lists: NaN is a key", "list_select.h", "if (!(value > __uint_as_float(0xff800000u))) return 0;",
           "if (value == __uint_as_float(0xff800000u)) return 0;", LISTS),
    Mutant("lists: the best key of the list bounds what is left out", "list_select.h", "lowest = min(lowest, key);",
           "lowest = lowest == 0xffffffffu ? key : max(lowest, key);", LISTS),
    Mutant("lists: threads are counted from the first warp alone", "list_select.h",
           "before += static_cast<int>(warps[w]);", "before += 0 * static_cast<int>(warps[w]);", LISTS),
    Mutant("lists: tokens with a bias are listed", "shortlists.cu", "if ((biased[index / 32] >> index % 32 & 1) != 0) continue;",
           "", LISTS),
    Mutant("lists: the last token of a piece is left out", "shortlists.cu", "column >= rows.columns) continue;",
           "column >= rows.columns || index == kPieceTokens - 1) continue;", LISTS),
    Mutant("lists: tokens are counted from the shard", "shortlists.cu", "out[place] = {key, static_cast<int32_t>(first + index)};",
           "out[place] = {key, static_cast<int32_t>(first + index - rows.first_token)};", LISTS),
    Mutant("lists: the last piece is not merged", "shortlists.cu", "pieces * list.want};", "max(1, pieces - 1) * list.want};",
           LISTS),
    Mutant("lists: entries that a piece lacks stay as they were", "shortlists.cu", "    out[i] = {0, 0};", "", LISTS),
    Mutant("lists: the bad token of the first piece alone", "shortlists.cu", "bad = min(bad, bad_tokens[p]);", "bad += 0;", LISTS),
    Mutant("lists: +inf is no bad logit", "shortlists.cu", "if (!(logit < __uint_as_float(0x7f800000u)))",
           "if (!(logit <= __uint_as_float(0x7f800000u)))", LISTS),
    Mutant("lists: no barrier before counts are read", "list_select.h", "= value;\n    __syncthreads();\n    turn_", "= value;\n    turn_",
           LISTS_SMALL, thread_sanitizer=True),
    Mutant("lists: counts are overwritten while they are read", "list_select.h", "turn_ = 1 - turn_;", "", LISTS_SMALL,
           thread_sanitizer=True),
    Mutant("lists: no barrier before what was chosen is read", "list_select.h", "  });\n  __syncthreads();\n  uint32_t lowest",
           "  });\n  uint32_t lowest", LISTS_SMALL, thread_sanitizer=True),
    Mutant("lists: no barrier after the marks of biases", "shortlists.cu", "    marks[word] = bits;\n  }\n  __syncthreads();",
           "    marks[word] = bits;\n  }", LISTS_SMALL, thread_sanitizer=True),
    # Noise.
    Mutant("noise: the tokens of a pair change places", "shortlists.cu", "odd == 0 ? noise.even : noise.odd",
           "odd == 0 ? noise.odd : noise.even", LISTS),
    Mutant("noise: nine rounds", "gumbel_noise.h", "round < 10; ++round", "round < 9; ++round", LISTS + ":GumbelNoise.*"),
    Mutant("noise: the words of the hash change places", "gumbel_noise.h",
           "{{token >> 1, static_cast<uint32_t>(path_hash),\n                 static_cast<uint32_t>(path_hash >> 32),",
           "{{token >> 1, static_cast<uint32_t>(path_hash >> 32),\n                 static_cast<uint32_t>(path_hash),", LISTS),
    Mutant("noise: the slot is left out", "gumbel_noise.h", "kTokenDomain << 24 | slot", "kTokenDomain << 24 | 0 * slot", LISTS),
    Mutant("noise: multiplied by the temperature", "shortlists.cu", "dev::MulRn(logit, list.inverse_temperature)",
           "dev::MulRn(logit, 1.0f / list.inverse_temperature)", LISTS),
    # Levels of draft forests.
    Mutant("levels: a stop token is drafted", "choose_level.cu", "|| Stops(all, task, rows->token[i])) continue;", ") continue;",
           LEVELS),
    Mutant("levels: the path hash of the parent", "choose_level.cu", "PathHash(level->hash[list->node[c]], list->token[c])",
           "level->hash[list->node[c]]", LEVELS),
    Mutant("levels: of a token's biases one counts", "level_draws.h", "sum += bias[i].bias;", "sum = bias[i].bias;", LEVELS),
    Mutant("levels: q is not renormalised", "level_draws.h", "staged_x[e] - largest - log_sum", "staged_x[e] - largest", LEVELS),
    Mutant("levels: an output that is known is not drafted", "choose_level.cu", "level->listed[slot] != 0) {", "false) {", LEVELS),
    Mutant("levels: the last bad row is named", "level_draws.h", "block->Min(bad ? static_cast<uint32_t>(thread) : 0xffffffffu)",
           "block->Min(bad && thread == count - 1 ? static_cast<uint32_t>(thread) : 0xffffffffu)", LEVELS),
    Mutant("levels: a row is below the parent of its parent", "place_level.cu", "line->node[layer][thread] = node;\n      node = state.parent[layer][node];",
           "node = state.parent[layer][node];\n      line->node[layer][thread] = node;", LEVELS),
    Mutant("levels: a row does not see itself", "place_level.cu", "layer < task.level; ++layer) {\n      const int32_t bit",
           "layer < task.level - 1; ++layer) {\n      const int32_t bit", LEVELS),
    Mutant("levels: no barrier before the line of a row is read", "place_level.cu", "  }\n  __syncthreads();\n", "  }\n", LEVELS,
           thread_sanitizer=True),
    Mutant("levels: no barrier before the draws are compared", "choose_level.cu", "Draw(task, rows, level);\n    __syncthreads();",
           "Draw(task, rows, level);", LEVELS, thread_sanitizer=True),
    # Sums.
    Mutant("sums: no barrier between tiles", "row_sums.cu",
           "sum = AddRn(sum, added[i]);\n    }\n    __syncthreads();", "sum = AddRn(sum, added[i]);\n    }",
           "CudaRowSums.SmallRows", thread_sanitizer=True),
    Mutant("sums: no barrier of the warp before the accumulators are joined", "row_sums.cu", "  __syncwarp();\n", "",
           "CudaRowSums.SmallRows", thread_sanitizer=True),
    Mutant("sums: no barrier before the maxima of the warps", "row_sums.cu",
           "= key;\n  __syncthreads();\n  for (int w = 0;", "= key;\n  for (int w = 0;", "CudaRowSums.SmallRows",
           thread_sanitizer=True),
    Mutant("sums: the last tile is not added", "row_sums.cu", "tile < count + kTile; tile += kTile", "tile < count; tile += kTile",
           "CudaRowSums.*"),
    Mutant("sums: the tile that is being computed is added", "row_sums.cu", "terms + (1 - turn) * kTile", "terms + turn * kTile",
           "CudaRowSums.*"),
    Mutant("sums: a second bias of a token counts alone", "row_sums.cu", "x = AddRn(x, bias[i].bias);",
           "x = AddRn(static_cast<double>(Logit(token)), bias[i].bias);", "CudaRowSums.*"),
    Mutant("sums: biased tokens do not count for the maximum", "row_sums.cu", "key = fmax(key, chunk.Key(token));", "",
           "CudaRowSums.*"),
    Mutant("sums: another rank's chunk is summed", "row_sums.cu", "if (held) max = LargestKey(chunk);",
           "if (chunk.begin >= rows.first_token) max = LargestKey(chunk);", "CudaRowSums.*"),
    # One-shot sums: what orders the ranks is seen by the thread sanitizer alone.
    Mutant("one-shot: the flag is raised without release", "one_shot.cu", "dev::StoreReleaseSystem(Flag(other, args.rank), launch);",
           "__atomic_store_n(Flag(other, args.rank), launch, __ATOMIC_RELAXED);", ONE_SHOT_SMALL, thread_sanitizer=True),
    Mutant("one-shot: no barrier before the flag", "one_shot.cu", "__syncthreads();  // the pieces of all threads are written", "",
           ONE_SHOT_SMALL, thread_sanitizer=True),
    Mutant("one-shot: one inbox for all launches", "one_shot.cu", "static_cast<int64_t>(launch % 2)", "int64_t{0}", ONE_SHOT_SMALL,
           thread_sanitizer=True),
    Mutant("one-shot: a sum begins at its own rank", "one_shot.cu",
           "return dev::LoadPack<N>((from == args.rank ? values : Inbox(args.rank, from)) + i);",
           "const int at = (from + args.rank) % args.ranks; return dev::LoadPack<N>((at == args.rank ? values : Inbox(args.rank, at)) + i);",
           "CudaOneShot.SumsInRankOrder*"),
    Mutant("one-shot: the first block to end counts the launch", "one_shot.cu", "+ 1 != gridDim.x", "!= 0", ONE_SHOT_SMALL,
           thread_sanitizer=True),
    Mutant("one-shot: a kernel that has waited for too long names itself", "one_shot.cu", "missing[other], 1", "missing[args.rank], 1",
           "CudaOneShot.AfterItsTime*"),
    # Exact mode.
    Mutant("row product: many rows are summed in one run", "row_product.cu", "const int runs = ProductRuns(args.outputs, args.inputs);",
           "const int runs = args.rows > 64 ? 1 : ProductRuns(args.outputs, args.inputs);", "CudaRowProduct.ARow*"),
    Mutant("row product: runs that one block sums are one sum", "row_product.cu", "      LaneSums<S> of_run;\n      of_run.Clear();\n      SumRun(run, &of_run);\n      sums->Add(of_run);",
           "      SumRun(run, sums);", "CudaRowProduct.RoomToMeet*"),
    Mutant("row product: the counter of a tile stays", "row_product.cu", "if (Thread() == 0) *counter = 0;", "", "CudaRowProduct.Matches*"),
    Mutant("row product: no barrier before the block's sums are counted", "row_product.cu",
           "gridDim.x + blockIdx.x;\n    __syncthreads();", "gridDim.x + blockIdx.x;", "CudaRowProduct.RoomToMeet*", thread_sanitizer=True),
    Mutant("exact list: chunks end at KV tiles of the row tile", "exact_work_list.cc",
           "tile.positions[end] / kExactChunkTiles == tile.positions[begin] / kExactChunkTiles",
           "end / kExactChunkTiles == begin / kExactChunkTiles", "CudaExactAttention.Chunks*"),
    Mutant("exact list: few rows take the class whose warps share tokens", "exact_work_list.cc", "shape.classes > 1 ? 1 : 0", "0",
           "CudaExactAttention.ARow*"),
    Mutant("exact mode: one row takes the tuned product", "matrix_products.cc", "if (exact_) {\n    ProductChoice only;\n    only.kind = ProductChoice::Kind::kRows;\n    return Enqueue",
           "if (exact_ && args.rows > 1) {\n    ProductChoice only;\n    only.kind = ProductChoice::Kind::kRows;\n    return Enqueue",
           "Types/ExactTest.ARow*/bf16", program="cuda_exact_test"),
)


def run(command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


def plant(mutant, folder):
    """The tree's path of the mutated copy below folder."""
    text = (KERNELS / mutant.file).read_text(encoding="utf8")
    if text.count(mutant.old) != 1:
        sys.exit(f"{mutant.name}: {mutant.old!r} occurs {text.count(mutant.old)} times in {mutant.file}")
    place = folder / "kernels/cuda" / mutant.file
    place.parent.mkdir(parents=True)
    place.write_text(text.replace(mutant.old, mutant.new), encoding="utf8")


def cuda_include(build):
    for line in (build / "CMakeCache.txt").read_text(encoding="utf8").splitlines():
        if line.startswith("COPPICE_CUDA_INCLUDE:"):
            return line.split("=", 1)[1]
    sys.exit(f"{build} was configured without the headers of the CUDA toolkit")


def link_kernels(build, sanitize, objects, program):
    tests = sorted((build / "tests/kernels/cuda/CMakeFiles/cuda_kernels_test.dir").rglob("*.o"))
    libraries = [build / "tests/kernels/cuda/libcoppice_cuda_probe_sim.a",
                 build / "kernels/cuda/device/libcoppice_cuda_kernels_sim.a", build / "kernels/cuda/device/libcoppice_simt.a",
                 build / "kernels/cuda/libcoppice_cuda_plan.a", build / "base/libcoppice_base.a"]
    return run(["g++", "-pthread", *sanitize, *objects, *tests, *libraries, "-lgmock", "-lgtest", "-lgtest_main", "-o", program])


def link_as_built(build, name, objects, program):
    """By the command of the build, with these objects before all others."""
    command = run(["ninja", "-C", build, "-t", "commands", "-s", f"bin/{name}"]).stdout.strip().splitlines()[-1]
    parts = [part for part in shlex.split(command) if part not in (":", "&&")]
    parts[parts.index("-o") + 1] = str(program)
    first = next(i for i, part in enumerate(parts) if part.endswith(".o"))
    return run([*parts[:first], *objects, *parts[first:]], cwd=build)


def survives(mutant, build):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plant(mutant, folder)
        sanitize = ["-fsanitize=thread", "-g1"] if mutant.thread_sanitizer else []
        objects = []
        for unit in mutant.units or UNITS.get(mutant.file, (mutant.file,)):
            source = folder / "kernels/cuda" / unit
            if not source.exists():
                source = KERNELS / unit
            objects.append(folder / f"{unit}.o")
            language = ["-x", "c++"] if unit.endswith(".cu") else []
            compiled = run(["g++", "-std=c++20", "-O1", "-fPIC", *sanitize, f"-I{folder}", f"-I{ROOT}", "-isystem",
                            cuda_include(build), *language, "-c", source, "-o", objects[-1]])
            if compiled.returncode != 0:
                sys.exit(f"{mutant.name} does not compile:\n{compiled.stderr}")
        program = folder / "test"
        if mutant.program == "cuda_kernels_test":
            linked = link_kernels(build, sanitize, objects, program)
        else:
            linked = link_as_built(build, mutant.program, objects, program)
        if linked.returncode != 0:
            sys.exit(f"{mutant.name} does not link:\n{linked.stderr}")
        environment = {**os.environ, "DEV_ORDER": "random", "DEV_SEED": "7", "TSAN_OPTIONS": "halt_on_error=1 symbolize=0 exitcode=66"}
        if mutant.overlap:
            environment["DEV_OVERLAP"] = "1"
        try:
            return run([program, f"--gtest_filter={mutant.tests}"], cwd=ROOT, env=environment, timeout=600).returncode == 0
        except subprocess.TimeoutExpired:
            return False  # a kernel that never ends


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    chosen = [m for m in MUTANTS if len(sys.argv) == 2 or sys.argv[2] in m.name]
    survivors = 0
    for mutant in chosen:
        survived = survives(mutant, build)
        survivors += survived
        print(f"{'SURVIVES' if survived else 'found'}: {mutant.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants are found")
    sys.exit(1 if survivors or not chosen else 0)


if __name__ == "__main__":
    main()
