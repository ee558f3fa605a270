// A matrix in blocks as the device keeps it, with random codes and scales, for tests of kernels.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/ops/block_matrix.h"
#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {

class DeviceBlocks {
 public:
  // Scales are of both signs; some are zero or subnormal. Every byte beside codes and scales is 0.
  DeviceBlocks(DType dtype, int64_t outputs, int64_t inputs, uint64_t seed)
      : dtype_(dtype), outputs_(outputs), inputs_(inputs), bytes_(Random(seed)) {}

  const void* data() const { return bytes_.data(); }
  DType dtype() const { return dtype_; }

  // The values, scale times code rounded to T, [outputs, inputs].
  template <class T>
  std::vector<T> Values() const {
    std::vector<T> values;
    for (int64_t output = 0; output < outputs_; ++output) {
      for (int64_t input = 0; input < inputs_; ++input)
        values.push_back(dev::FromFloat<T>(Value(output, input)));
    }
    return values;
  }

 private:
  bool four() const { return dtype_ == DType::kQ4_0; }
  int64_t Unit(int64_t output, int64_t input) const {
    return output / kBlockPanel * BlockPanelBytes(four(), inputs_) +
           input / kBlockUnit * BlockUnitBytes(four());
  }

  std::vector<uint8_t> Random(uint64_t seed) const {
    std::vector<uint8_t> bytes(BlockPanels(outputs_) * BlockPanelBytes(four(), inputs_));
    std::mt19937_64 generator(seed);
    for (int64_t output = 0; output < outputs_; ++output) {
      for (int64_t input = 0; input < inputs_; ++input) {
        uint8_t* const unit = bytes.data() + Unit(output, input);
        const BlockPlace place = PlaceInUnit(four(), output % kBlockPanel, input % kBlockUnit);
        const auto code = generator() % (four() ? 16 : 256);
        unit[place.code] |= static_cast<uint8_t>(code << place.shift);
        if (input % 32 != 0) continue;
        const uint64_t kind = generator() % 16;
        const float size = static_cast<float>(1 + generator() % 1024) / 65536.0f;
        const dev::f16 scale = dev::FromFloat<dev::f16>(kind == 0       ? 0.0f
                                                        : kind == 1     ? size * 0x1p-12f
                                                        : kind % 2 == 0 ? size
                                                                        : -size);
        std::memcpy(unit + place.scale, &scale, sizeof scale);
      }
    }
    return bytes;
  }

  float Value(int64_t output, int64_t input) const {
    const uint8_t* const unit = bytes_.data() + Unit(output, input);
    const BlockPlace place = PlaceInUnit(four(), output % kBlockPanel, input % kBlockUnit);
    dev::f16 scale;
    std::memcpy(&scale, unit + place.scale, sizeof scale);
    const int code = unit[place.code] >> place.shift;
    return dev::ToFloat(scale) * static_cast<float>(four() ? (code & 15) - 8 : code - 128);
  }

  const DType dtype_;
  const int64_t outputs_, inputs_;
  const DeviceArray<uint8_t> bytes_;
};

}  // namespace coppice::kernels::cuda
