// A device made of host memory, for tests: link-time stand-ins for the CUDA runtime and cuBLASLt
// (cudart.cc, cublaslt.cc) behind the toolkit's own headers. What it is stricter about than a
// device may be:
//   - Work that is queued runs only when the host waits for its stream, or asks for an event of it,
//     and then piece by piece. So whoever reads a result too early reads what was there before.
//   - Memory is full of 0xFF at first (NaN as a float, -1 as an id); a page that must not be
//     touched follows each buffer. With `protect` the host can not touch device memory at all.
//   - Copies must stay inside of buffers that live, and host memory must be pinned.
//   - Sums of cuBLASLt have an order that depends on the algorithm and on the number of rows.
//   - Kernels, fills, captures and graphs are queued by threads of the stream's device; an event is
//     recorded on streams of its own device, a product done with the handle of the stream's.
//   - While a stream is captured, the thread may not allocate, free, wait or ask for events. Work
//     that was recorded keeps its arguments, and reads what they point to whenever it is launched.
// Work runs in the thread that waits. Thread-safe; a thread has a device of its own, as in the
// runtime. Memory that another process has open may not be freed. A kernel that waits for other
// ranks (one_shot.h) waits inside of the call that runs it, for ranks that are other processes. For
// running programs, from the environment: with DEV_FAIL_WORK=n the device fails for good at its
// n-th piece of work; with DEV_FAIL_IPC=n the device of number n opens no memory of other
// processes; DEV_DEVICES=n is the number of devices. NCCL: fake_nccl.h.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/device/cost.h"

namespace coppice::kernels::cuda::fake {

// A product that cuBLASLt is asked to do, row-major as in matrix_products.h.
struct FakeProduct {
  int algorithm = 0;
  int64_t rows = 0, outputs = 0, inputs = 0;
};

// A piece of work that has run.
struct Counted {
  std::string name;
  LaunchCost cost;
  int64_t blocks = 0, threads = 0;  // 0: not known (products of cuBLASLt, copies)
  bool overlaps = false;            // may be placed while what ran before still runs (overlap.h)
};

struct DeviceSettings {
  int devices = 1;
  std::string name = "simulated device";
  int major = 9, minor = 0;  // compute capability
  int pci_domain = 0, pci_bus = 0x3b, pci_device = 0;
  size_t memory = size_t{2} << 30;  // bytes
  size_t block_shared_bytes = 227 << 10;
  int driver_version = CUDART_VERSION;  // 0: no driver
  int multiprocessors = 4;
  bool mps = false;  // processes share it by MPS (from CUDA 13 on)
  // The device of this number has memory for only this many graphs that are ready to be launched.
  int small_device = -1;
  int64_t graphs_of_small_device = 0;
  int work_per_query = 4;   // pieces of work that one query of an event runs
  bool protect = false;     // a host access to device memory ends the process by a signal
  bool count_only = false;  // work is counted; only copies from the host are done
  // Time on the device, in microseconds: of each piece of work; where they are set, of a kernel by
  // what it declares, and of a product by algorithm and rows.
  double work_us = 1000;
  std::function<double(const Counted& kernel)> kernel_us;
  std::function<double(const FakeProduct& product)> product_us;
  // What cuBLASLt proposes: this many algorithms, numbered in its order, each summing by a scheme
  // (cublasLtReductionScheme_t) if one is listed. If it ignores the caller's mask, it also proposes
  // algorithms outside the mask.
  int algorithms = 3;
  std::vector<uint32_t> reductions;
  bool ignores_reduction_mask = false;
  int refused_algorithm = -1;  // one that it proposes and then refuses, with this status
  bool refuses_all = false;    // all that it proposes, with that status
  cublasStatus_t refusal = CUBLAS_STATUS_NOT_SUPPORTED;
  bool captures_overlap = true;  // else a capture refuses launches that overlap
  bool clusters = true;          // else launches of clusters are refused
  // It proposes nothing for matrices whose rows are less aligned than it may count on.
  bool proposes_only_aligned = false;
  int unreadable_algorithm = -1;  // one that it proposes without telling how it sums
  uint64_t library_version = 130100;
};
// Applies to everything that is made from now on.
void Configure(const DeviceSettings& settings);

// Numbers of live objects.
struct LiveCounts {
  int64_t device_buffers = 0, pinned_buffers = 0, streams = 0, events = 0, handles = 0;
  int64_t imports = 0;  // imported buffers of other processes
  int64_t graphs = 0;   // recorded, or ready to be launched
  size_t device_bytes = 0;

  int64_t total() const {
    return device_buffers + pinned_buffers + streams + events + handles + imports + graphs;
  }
};
LiveCounts CountLive();

// Work that the host has enqueued since the program began. Recorded work is counted separately, and
// then as one launch of a graph.
struct WorkCounts {
  int64_t launches = 0;  // launches of kernels and products
  int64_t recorded = 0;  // recorded pieces of work
  int64_t graph_launches = 0;
  int64_t overlapping = 0, clustered = 0;  // of launches, also recorded ones
  int64_t copies_up = 0, copies_down = 0;  // from and to the host
  size_t bytes_up = 0, bytes_down = 0;
};
WorkCounts CountWork();

// Work given to the device since ClearTotals, by name: what kernels declare (device.h), "product N
// x K" (each operand counts once), "copy to device", "copy to host", "copy", "fill". "undeclared":
// kernels that declared nothing.
struct Totals {
  int64_t launches = 0, bytes = 0, flops = 0;
};
std::map<std::string, Totals> TotalsByName();
// The same pieces of work one by one, as they ran; only while the device counts only.
std::vector<Counted> WorkInOrder();
void ClearTotals();  // and what ran in order

// Calls of the runtime, launches of kernels included, since the program began.
int64_t CountCalls();
int64_t CountCallsOf(const std::string& name);
// The n-th call from now on (0 = the next) returns this error and does nothing; but what it should
// free is freed.
void FailCall(int64_t n, cudaError_t error);
// The n-th piece of work from now on fails on the device: from then on every call returns this
// error.
void FailWork(int64_t n, cudaError_t error);
// The call, or "work", that FailCall or FailWork has hit; "" = none yet.
std::string FailedCall();
// Whether that happened while its thread recorded a stream.
bool FailedInCapture();
// Cancels planned failures; the device works again.
void Recover();

// Rules that the host has broken since the last Recover, in words.
std::vector<std::string> Violations();

}  // namespace coppice::kernels::cuda::fake
