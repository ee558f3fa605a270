// The parts of the benchmark, one file each. timer is nullptr when the report only lists cases.
#pragma once

#include "absl/status/status.h"
#include "lab/bench/cuda/device_timer.h"
#include "lab/bench/cuda/report.h"

namespace coppice::bench {

// The ceilings of the device: bytes and operations per second.
absl::Status BenchCeilings(Report* report, DeviceTimer* timer);
// Tunes the products of the decoder: the time of all products of a step, by rows.
absl::Status BenchTune(Report* report, DeviceTimer* timer);
// Every matrix product of a layer and the head: as cuBLASLt proposes, by the skinny kernel, and as
// tuned.
absl::Status BenchMatMul(Report* report, DeviceTimer* timer);
// Tiled attention of one layer over forests.
absl::Status BenchAttention(Report* report, DeviceTimer* timer);
// The same by wgmma and the copy engine, beside the portable kernel. Only on compute capability
// 9.0.
absl::Status BenchWideAttention(Report* report, DeviceTimer* timer);
// Norm, rotary positions with the store of K and V, the gated activation.
absl::Status BenchElementwise(Report* report, DeviceTimer* timer);
// Candidate lists of rows of logits.
absl::Status BenchCandidateLists(Report* report, DeviceTimer* timer);
// Whole steps through kernels::Backend, by the clock of the host.
absl::Status BenchStep(Report* report, DeviceTimer* timer);
// Passes and forests of draft models.
absl::Status BenchDrafts(Report* report, DeviceTimer* timer);
// Rounds of drafts and verification, against plain steps.
absl::Status BenchRounds(Report* report, DeviceTimer* timer);
absl::Status BenchExact(Report* report, DeviceTimer* timer);

}  // namespace coppice::bench
