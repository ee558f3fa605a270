#include "kernels/cuda/simulator/fake/fake_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/cuda/simulator/fake/device_state.h"

namespace coppice::kernels::cuda::fake {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;
constexpr size_t kPoisoned = size_t{4} << 20;  // bytes per buffer; more would only take time

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

DeviceState& DeviceState::Get() {
  static DeviceState* const state = [] {
    auto* made = new DeviceState();
    if (const char* work = std::getenv("DEV_FAIL_WORK")) {
      made->failing_work = std::atoll(work);
      made->work_error = cudaErrorIllegalAddress;
    }
    if (const char* devices = std::getenv("DEV_DEVICES")) {
      made->settings.devices = std::atoi(devices);
    }
    return made;
  }();
  return *state;
}

int& DeviceState::CurrentDevice() {
  static thread_local int device = 0;
  return device;
}

cudaError_t& DeviceState::LastError() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t DeviceState::Begin(const char* call) {
  const int64_t number = calls++;
  ++calls_of[call];
  if (number == failing_call) {
    failing_call = -1;
    failed = call;
    failed_in_capture = Capturing();
    return call_error;
  }
  return lasting_error;
}

cudaError_t DeviceState::Violate(const std::string& rule) {
  std::fprintf(stderr, "simulated device: %s\n", rule.c_str());
  violations.push_back(rule);
  return cudaErrorInvalidValue;
}

// The data ends where the page begins that must not be touched, up to its alignment.
cudaError_t DeviceState::Allocate(Place place, size_t bytes, void** out) {
  *out = nullptr;
  if (bytes == 0) return Violate("an allocation of nothing");
  const bool device = place == Place::kDevice;
  if (device && bytes > settings.memory - std::min(settings.memory, live.device_bytes)) {
    return cudaErrorMemoryAllocation;
  }
  Buffer buffer{place, bytes};
  buffer.accessible = RoundUp(bytes, kPage);
  buffer.mapped = buffer.accessible + kPage;
  buffer.mapping = mmap(nullptr, buffer.mapped, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (buffer.mapping == MAP_FAILED) return cudaErrorMemoryAllocation;
  auto* begin = static_cast<uint8_t*>(buffer.mapping);
  uint8_t* data = begin + buffer.accessible - RoundUp(bytes, kAlignment);
  if (!settings.count_only) std::memset(data, 0xff, std::min(bytes, kPoisoned));
  mprotect(begin + buffer.accessible, kPage, PROT_NONE);
  if (device && settings.protect) mprotect(begin, buffer.accessible, PROT_NONE);
  buffers_[reinterpret_cast<uintptr_t>(data)] = buffer;
  (device ? live.device_buffers : live.pinned_buffers) += 1;
  if (device) live.device_bytes += bytes;
  *out = data;
  return cudaSuccess;
}

// As on a device, freeing waits for what is queued.
cudaError_t DeviceState::Free(Place place, void* data) {
  if (data == nullptr) return cudaSuccess;
  DrainDevice();
  if (nccl_memory.count(data)) return Violate("the runtime frees memory of NCCL");
  const auto found = buffers_.find(reinterpret_cast<uintptr_t>(data));
  if (found == buffers_.end() || found->second.place != place) {
    return Violate("memory is freed that is not allocated");
  }
  const Buffer& buffer = found->second;
  if (buffer.imported) return Violate("memory of another process is freed");
  const bool device = place == Place::kDevice;
  (device ? live.device_buffers : live.pinned_buffers) -= 1;
  if (device) live.device_bytes -= buffer.bytes;
  if (buffer.shared >= 0) CloseExport(buffer);
  munmap(buffer.mapping, buffer.mapped);
  buffers_.erase(found);
  return cudaSuccess;
}

bool DeviceState::Holds(Place place, const void* data, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  auto after = buffers_.upper_bound(address);
  if (after == buffers_.begin()) return false;
  const auto& [begin, buffer] = *--after;
  return buffer.place == place && address + bytes <= begin + buffer.bytes;
}

void DeviceState::AddStream(CUstream_st* stream) {
  streams_.push_back(stream);
  ++live.streams;
}

bool DeviceState::IsStream(const CUstream_st* stream) const {
  return std::find(streams_.begin(), streams_.end(), stream) != streams_.end();
}

void DeviceState::RemoveStream(CUstream_st* stream) {
  streams_.erase(std::find(streams_.begin(), streams_.end(), stream));
  --live.streams;
}

cudaError_t DeviceState::CheckStream(const CUstream_st* stream, const char* what) {
  if (!IsStream(stream)) return Violate(std::string(what) + " on a stream that does not live");
  if (stream->device == CurrentDevice()) return cudaSuccess;
  Violate(std::string(what) + " on a stream of device " + std::to_string(stream->device) +
          " by a thread of device " + std::to_string(CurrentDevice()));
  return cudaErrorInvalidResourceHandle;
}

bool DeviceState::Queue(CUstream_st* stream, std::function<cudaError_t()> work, double us) {
  if (stream->capture != nullptr) {
    stream->capture->work.push_back({std::move(work), us});
    ++counts.recorded;
    return false;
  }
  stream->work.push_back({std::move(work), us});
  ++stream->queued;
  return true;
}

bool DeviceState::Capturing() const {
  for (const CUstream_st* stream : streams_) {
    if (stream->capture != nullptr && stream->capturing_thread == std::this_thread::get_id()) {
      return true;
    }
  }
  return false;
}

cudaError_t DeviceState::RefuseCapture(const char* call) {
  for (CUstream_st* stream : streams_) stream->capture_broken |= stream->capture != nullptr;
  Violate(std::string(call) + " while a stream is captured");
  return cudaErrorStreamCaptureUnsupported;
}

// A device that is lost runs nothing more.
void DeviceState::RunSome(CUstream_st* stream, uint64_t pieces) {
  if (stream->work.empty()) return;
  if (settings.protect) ProtectDevice(false);
  for (; pieces > 0 && !stream->work.empty(); --pieces) {
    if (lasting_error == cudaSuccess && !stream->begun && works++ == failing_work) {
      failing_work = -1;
      failed = "work";
      lasting_error = work_error;
    }
    if (lasting_error == cudaSuccess) {
      stream->begun = true;
      const CUstream_st::Work work = stream->work.front();
      ran_us.reset();
      const cudaError_t outcome = work.run();
      if (outcome == cudaErrorNotReady) break;
      lasting_error = outcome;
    }
    const double us = ran_us.value_or(stream->work.front().us);
    stream->us_after.push_back(stream->us_after.back() + us);
    stream->work.pop_front();
    stream->begun = false;
    ++stream->done;
  }
  if (settings.protect) ProtectDevice(true);
}

void DeviceState::Drain(CUstream_st* stream) {
  while (IsStream(stream)) {
    RunSome(stream, UINT64_MAX);
    if (stream->work.empty()) return;
    mutex.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    mutex.lock();
  }
}

void DeviceState::DrainDevice() {
  const std::vector<CUstream_st*> streams = streams_;
  for (CUstream_st* stream : streams) {
    if (IsStream(stream) && stream->device == CurrentDevice()) Drain(stream);
  }
}

bool DeviceState::DeviceBusy() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const CUstream_st* stream) {
    return stream->device == CurrentDevice() && !stream->work.empty();
  });
}

void DeviceState::Count(Counted work) {
  Totals& of = totals[work.name];
  ++of.launches;
  of.bytes += work.cost.bytes;
  of.flops += work.cost.flops;
  if (settings.kernel_us && work.blocks > 0) ran_us = settings.kernel_us(work);
  if (settings.count_only) in_order.push_back(std::move(work));
}

void DeviceState::ProtectDevice(bool on) {
  for (const auto& [address, buffer] : buffers_) {
    if (buffer.place != Place::kDevice) continue;
    mprotect(buffer.mapping, buffer.accessible, on ? PROT_NONE : PROT_READ | PROT_WRITE);
  }
}

// ---- What tests call

void Configure(const DeviceSettings& settings) {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.settings = settings;
  state.graphs_of_small_device = 0;
}

LiveCounts CountLive() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.live;
}

WorkCounts CountWork() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.counts;
}

std::map<std::string, Totals> TotalsByName() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.totals;
}

void ClearTotals() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.totals.clear();
  state.in_order.clear();
}

std::vector<Counted> WorkInOrder() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.in_order;
}

int64_t CountCalls() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.calls;
}

int64_t CountCallsOf(const std::string& name) {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.calls_of[name];
}

void FailCall(int64_t n, cudaError_t error) {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.failing_call = state.calls + n;
  state.call_error = error;
  state.failed.clear();
}

void FailWork(int64_t n, cudaError_t error) {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.failing_work = state.works + n;
  state.work_error = error;
  state.failed.clear();
}

std::string FailedCall() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.failed;
}

bool FailedInCapture() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.failed_in_capture;
}

void Recover() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.failing_call = state.failing_work = -1;
  state.failed.clear();
  state.failed_in_capture = false;
  state.violations.clear();
  DeviceState::LastError() = state.lasting_error = cudaSuccess;
}

std::vector<std::string> Violations() {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.violations;
}

}  // namespace coppice::kernels::cuda::fake
