// What a launch does, whatever the hardware, for predictions of its time (dev::Declare).
#pragma once

#include <cstdint>

namespace coppice::kernels::cuda {

// Zero where a launch has none worth counting. Only bytes and flops of every kernel are exact.
struct LaunchCost {
  // Bytes that its threads load from and store to global memory, caches not counted, and arithmetic
  // operations.
  int64_t bytes = 0, flops = 0;
  // Of the bytes: weights, K and V, which no launch shortly before it has touched.
  int64_t cold_bytes = 0;
  // Instructions that warps issue, counted in machine code for compute capability 9.0.
  int64_t instructions = 0;
  // Bytes read from and written to shared memory.
  int64_t shared_bytes = 0;
  // The longest chain of loads from global memory that wait for each other, and of instructions of
  // one thread of one block.
  int64_t dependent_loads = 0, serial_instructions = 0;
  // Blocks with work; 0: the grid. How many a multiprocessor holds; 0: those of 2,048 threads. Bytes of
  // global memory that a block keeps on their way; 0: 32 bytes a thread.
  int64_t blocks = 0, resident = 0, block_bytes = 0;
  // Bytes of weights that a block fetches before it waits for the launch before it, if they overlap.
  int64_t early_bytes = 0;
};

}  // namespace coppice::kernels::cuda
