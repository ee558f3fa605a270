// What this machine can do at most, measured: bytes that threads read from memory, and operations
// of the multiply instructions in registers. Every floor of coppice-bench comes from here, from the
// same run as the times beside it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_target.h"

namespace coppice::bench {

// A dot product of pairs, of groups of four, and multiply-add. kMaddubs is AVX2's way to kVnni.
enum class Instruction { kMulAdd, kFma256, kFma512, kBf16Dot, kMaddubs, kVnni };
const char* InstructionName(Instruction instruction);

// Those with which products of weights of this type are computed.
Instruction ProductInstruction(kernels::cpu::KernelTarget target, kernels::DType weights);
// Those of everything that stays in f32 with eight lanes at most, such as attention.
Instruction FloatInstruction(kernels::cpu::KernelTarget target);

// Calls them alternately, `repetitions` times each, after one call of each that does not count.
// Returns the median seconds of each.
std::vector<double> MedianSeconds(const std::vector<std::function<void()>>& calls, int repetitions);

// Operations per second of all threads together: the best of nine. A multiplication and its
// addition are two. The machine must have the instruction.
double PeakOperations(Instruction instruction, ThreadTeam* team);
// Bytes per second that all threads together read: the best of nine reads of 256 MB in huge pages.
double ReadBandwidth(ThreadTeam* team);
// The same from the second-level cache, from 256 kB for each thread.
double CacheBandwidth(ThreadTeam* team);

// The memory of this process, as the operating system reports it.
struct ResidentMemory {
  double now_mb = 0;
  double peak_mb = 0;  // since ForgetPeak, or the start
};
ResidentMemory ReadResidentMemory();
void ForgetPeak();

}  // namespace coppice::bench
