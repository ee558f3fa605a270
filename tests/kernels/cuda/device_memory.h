// Memory that kernels and the test both reach, between guard bands.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/ops/launch.h"

namespace coppice::kernels::cuda {

// Host memory for the simulator (device_memory_sim.cc), managed memory on a GPU
// (device_memory_gpu.cc). 256-byte aligned.
void* AllocateForDevice(size_t bytes);
void FreeForDevice(void* memory);
// Until all launches have run; ends the program when one failed.
void WaitForDevice();
// Whether launches may overlap (overlap.h): otherwise the device refuses such a launch.
bool DeviceOverlapsLaunches();
bool DeviceHasClusters();  // of blocks
bool DeviceIsSimulated();
// Until all launches of one call of `enqueue`, which overlap (OverlapScope), have run. In the
// simulator each begins as early as it may.
void RunOverlapped(const std::function<void()>& enqueue);

// count values of T, 256-byte aligned, with a guard band on each side. Poisoned with 0xff: NaN as a
// float, -1 as an integer.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    bytes_ = (count * sizeof(T) + 255) / 256 * 256 + 2 * kGuard;
    memory_ = static_cast<uint8_t*>(AllocateForDevice(bytes_));
    std::memset(memory_, kGuardByte, bytes_);
    std::memset(memory_ + kGuard, 0xff, count * sizeof(T));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  ~DeviceArray() {
    WaitForDevice();
    for (size_t i = 0; i < bytes_; ++i) {
      if (i == kGuard) i += count_ * sizeof(T);
      if (i < bytes_ && memory_[i] != kGuardByte) {
        ADD_FAILURE() << "a kernel wrote outside of an array of " << count_ * sizeof(T)
                      << " bytes, at byte " << static_cast<int64_t>(i) - int64_t{kGuard};
        break;
      }
    }
    FreeForDevice(memory_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return reinterpret_cast<T*>(memory_ + kGuard); }
  const T* data() const { return reinterpret_cast<const T*>(memory_ + kGuard); }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  std::vector<T> Copy() const { return std::vector<T>(data(), data() + count_); }

 private:
  static constexpr size_t kGuard = 512;
  static constexpr uint8_t kGuardByte = 0xa7;
  size_t count_, bytes_;
  uint8_t* memory_;
};

// The type of the kernels and its DType.
template <class T>
inline constexpr DType kTypeOf = sizeof(T) == 4                 ? DType::kF32
                                 : sizeof(T) == 1               ? DType::kI8
                                 : std::is_same_v<T, dev::bf16> ? DType::kBF16
                                                                : DType::kF16;

// Values in [-size, size), as T holds them. Codes: any that are stored, whatever the size.
template <class T>
std::vector<T> RandomValues(size_t count, uint64_t seed, float size = 1.0f) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<float> uniform(-size, size);
  std::vector<T> values(count);
  for (T& value : values) {
    if constexpr (std::is_same_v<T, int8_t>) {
      value = static_cast<int8_t>(std::lrint(uniform(generator) / size * 127));
    } else {
      value = dev::FromFloat<T>(uniform(generator));
    }
  }
  return values;
}

// |got - want| within one rounding of T, and `slack` relative to the size of what was summed.
template <class T>
void ExpectNear(T got, double want, double size, double slack, const std::string& where) {
  constexpr DType kType = kTypeOf<T>;
  const double relative = kType == DType::kBF16 ? 0x1p-8 : kType == DType::kF16 ? 0x1p-11 : 0.0;
  const double absolute = kType == DType::kF16 ? 0x1p-25 : 0.0;  // of subnormals
  const double value = dev::ToFloat(got);
  // Also false for NaN.
  if (std::abs(value - want) <= relative * std::abs(want) + absolute + slack * size) return;
  ADD_FAILURE() << where << ": " << value << ", expected " << want;
}

}  // namespace coppice::kernels::cuda
