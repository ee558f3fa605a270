// The state behind the stand-ins of the runtime: memory, streams, planned failures. One lock, held
// by Call(), guards all of it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/simulator/fake/fake_device.h"

// The runtime's own names for what its handles point to.
struct CUstream_st {
  struct Work {
    std::function<cudaError_t()> run;
    double us = 0;
  };
  // A piece that returns cudaErrorNotReady waits for another rank: it stays first, and is called
  // again.
  std::deque<Work> work;
  uint64_t queued = 0, done = 0;
  bool begun = false;  // its first piece has begun
  int device = 0;
  CUgraph_st* capture = nullptr;  // takes the work instead, while it is recorded
  std::thread::id capturing_thread;
  bool capture_broken = false;         // broken by a call that is not allowed during a capture
  std::vector<double> us_after = {0};  // the clock when this many pieces are done
};
struct CUgraph_st {
  std::vector<CUstream_st::Work> work;
};
struct CUgraphExec_st {
  std::vector<CUstream_st::Work> work;
  int device = 0;
};
struct CUevent_st {
  bool timed = false;
  int device = 0;
  CUstream_st* stream = nullptr;  // nullptr: never recorded
  uint64_t mark = 0;              // reached when this many pieces of the stream's work are done
  bool captured = false;  // last recorded while the stream was captured, so it cannot be queried
};

namespace coppice::kernels::cuda::fake {

enum class Place { kDevice, kPinned };

class DeviceState {
 public:
  static DeviceState& Get();
  // As in the runtime, each thread has its own device and its own error.
  static int& CurrentDevice();
  static cudaError_t& LastError();

  std::mutex mutex;
  DeviceSettings settings;
  LiveCounts live;
  WorkCounts counts;
  std::map<std::string, Totals> totals;
  std::vector<Counted> in_order;
  std::optional<double> ran_us;  // time of the piece of work that has just run, if that is known
  int64_t calls = 0;
  std::map<std::string, int64_t> calls_of;  // calls by name of the function
  cudaError_t lasting_error = cudaSuccess;  // error of failed work: the device is lost
  std::vector<std::string> violations;
  int64_t graphs_of_small_device = 0;  // that it was asked for
  std::set<const void*> nccl_memory;   // memory that NCCL has allocated and must free

  // Planned failures, by the number of the call or piece of work; -1 = none.
  int64_t failing_call = -1, failing_work = -1, works = 0;
  cudaError_t call_error = cudaSuccess, work_error = cudaSuccess;
  std::string failed;
  bool failed_in_capture = false;

  // The error that this call must return before it does anything.
  cudaError_t Begin(const char* call);

  cudaError_t Allocate(Place place, size_t bytes, void** out);
  cudaError_t Free(Place place, void* data);
  // Exports a buffer of this process, so that another process can open it. It becomes shared memory
  // that is freed with the last of the processes: nothing is left in the system.
  cudaError_t Export(void* data, cudaIpcMemHandle_t* handle);
  cudaError_t Import(const cudaIpcMemHandle_t& handle, void** out);
  cudaError_t CloseImport(void* data);
  // Whether [data, data + bytes) lies in one buffer of that kind.
  bool Holds(Place place, const void* data, size_t bytes) const;

  void AddStream(CUstream_st* stream);
  bool IsStream(const CUstream_st* stream) const;
  void RemoveStream(CUstream_st* stream);
  // Why this thread may not call `what` with the stream: it does not live, or is of another device
  // than the thread's.
  cudaError_t CheckStream(const CUstream_st* stream, const char* what);
  // Queues the work, or records it while the stream is captured. Returns whether it was queued.
  bool Queue(CUstream_st* stream, std::function<cudaError_t()> work, double us);
  bool Queue(CUstream_st* stream, std::function<cudaError_t()> work) {
    return Queue(stream, std::move(work), settings.work_us);
  }
  // Whether this thread records some stream. Calls that might wait for the device or use an unnamed
  // stream are then refused, as in the runtime's mode "thread local", and spoil the recording.
  bool Capturing() const;
  cudaError_t RefuseCapture(const char* call);
  // Runs at most this many pieces.
  void RunSome(CUstream_st* stream, uint64_t pieces);
  // Runs until all work is done. Releases the lock while a piece waits for another rank.
  void Drain(CUstream_st* stream);
  void DrainDevice();       // all streams of the current device
  bool DeviceBusy() const;  // a stream of the current device has work

  // Counts one piece of work that has just run.
  void Count(Counted work);

  cudaError_t Violate(const std::string& rule);

 private:
  struct Buffer {
    Place place = Place::kDevice;
    size_t bytes = 0;
    void* mapping = nullptr;
    size_t mapped = 0;      // bytes, including the page that must not be touched
    size_t accessible = 0;  // bytes without that page
    int shared = -1;        // file descriptor of an exported buffer
    // The processes that have the buffer open, in a page of that file after the buffer's bytes.
    std::atomic<int32_t>* openers = nullptr;
    bool imported = false;
  };
  void ProtectDevice(bool on);
  void CloseExport(const Buffer& buffer);

  std::map<uintptr_t, Buffer> buffers_;  // by address
  std::vector<CUstream_st*> streams_;
};

// One call of the runtime: body() unless the call is to fail. always: body runs nevertheless (it
// frees something).
template <class Body>
cudaError_t Call(const char* name, Body&& body, bool always = false) {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const cudaError_t first = state.Begin(name);
  cudaError_t error = first;
  if (first == cudaSuccess || always) {
    const cudaError_t done = body(state);
    if (first == cudaSuccess) error = done;
  }
  if (error != cudaSuccess) DeviceState::LastError() = error;
  return error;
}

// A call that the runtime refuses while its thread records a stream.
template <class Body>
cudaError_t UncapturedCall(const char* name, Body&& body, bool always = false) {
  return Call(
      name,
      [&](DeviceState& state) {
        return state.Capturing() ? state.RefuseCapture(name) : body(state);
      },
      always);
}

}  // namespace coppice::kernels::cuda::fake
