#include "tests/kernels/cuda/test_backend.h"

#include <cmath>
#include <cstring>
#include <map>

#include "base/check.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/element.h"

namespace coppice::kernels {
namespace {

class TestCpu : public TestBackend {
 public:
  explicit TestCpu(bool always_list) {
    BackendOptions options = {"cpu", &threads_, communicator_.get()};
    options.always_list = always_list;
    backend_ = MakeBackend(options).value();
  }
  void Overwrite(const Tensor& tensor, const std::vector<float>& values) override {
    const std::vector<float> rounded = Rounded(values, dtype_of_.at(tensor.data));
    std::memcpy(tensor.data, rounded.data(), rounded.size() * sizeof(float));
  }
  std::vector<float> Read(const Tensor& tensor) override {
    const auto* values = static_cast<const float*>(tensor.data);
    return {values, values + tensor.rows * tensor.columns};
  }

 private:
  Tensor New(int64_t rows, int64_t columns, DType dtype) override {
    const Tensor tensor = backend_->Allocate(rows, columns, DType::kF32).value();
    dtype_of_[tensor.data] = dtype;
    return tensor;
  }
  std::map<const void*, DType> dtype_of_;  // whose values a tensor holds
};

class TestCuda : public TestBackend {
 public:
  TestCuda(bool always_list, bool graphs, const std::string& tuning_cache) {
    BackendOptions options = {"cuda", &threads_, communicator_.get()};
    options.always_list = always_list;
    options.graphs = graphs;
    options.tuning_cache = tuning_cache;
    backend_ = MakeBackend(options).value();
  }
  TestCuda(comm::Communicator* communicator, bool always_list) {
    BackendOptions options = {"cuda", &threads_, communicator, always_list};
    options.collectives.kind = "host";
    backend_ = MakeBackend(options).value();
  }
  explicit TestCuda(bool wide_attention) {
    BackendOptions options = {"cuda", &threads_, communicator_.get()};
    options.wide_attention = wide_attention;
    backend_ = MakeBackend(options).value();
  }
  void Overwrite(const Tensor& tensor, const std::vector<float>& values) override {
    const size_t bytes = values.size() * DTypeSize(tensor.dtype);
    const auto staging = cuda::PinnedBuffer::Allocate(bytes, "a test").value();
    if (tensor.dtype == DType::kF32) {
      std::memcpy(staging.data(), values.data(), bytes);
    } else {
      auto* bits = reinterpret_cast<uint16_t*>(staging.data());
      for (size_t i = 0; i < values.size(); ++i) {
        bits[i] = tensor.dtype == DType::kBF16 ? FloatToBf16(values[i]) : FloatToF16(values[i]);
      }
    }
    COPPICE_CHECK(stream_.CopyToDevice(tensor.data, staging.data(), bytes, "a test").ok());
    COPPICE_CHECK(stream_.Synchronize("a test").ok());
  }
  std::vector<float> Read(const Tensor& tensor) override {
    std::vector<float> values(tensor.rows * tensor.columns);
    const size_t bytes = values.size() * DTypeSize(tensor.dtype);
    const auto staging = cuda::PinnedBuffer::Allocate(bytes, "a test").value();
    COPPICE_CHECK(stream_.CopyToHost(staging.data(), tensor.data, bytes, "a test").ok());
    COPPICE_CHECK(stream_.Synchronize("a test").ok());
    if (tensor.dtype == DType::kF32) {
      std::memcpy(values.data(), staging.data(), bytes);
    } else {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = ElementToFloat(staging.data(), tensor.dtype, static_cast<int64_t>(i));
    }
    return values;
  }

 private:
  Tensor New(int64_t rows, int64_t columns, DType dtype) override {
    return backend_->Allocate(rows, columns, dtype).value();
  }
  cuda::DeviceStream stream_ = cuda::DeviceStream::Create("a test").value();
};

}  // namespace

std::unique_ptr<TestBackend> TestBackend::Make(const std::string& kind, bool always_list,
                                               bool graphs, const std::string& tuning_cache) {
  if (kind == "cpu") return std::make_unique<TestCpu>(always_list);
  return std::make_unique<TestCuda>(always_list, graphs, tuning_cache);
}

std::unique_ptr<TestBackend> TestBackend::MakeRank(comm::Communicator* communicator,
                                                   bool always_list) {
  return std::make_unique<TestCuda>(communicator, always_list);
}

std::unique_ptr<TestBackend> TestBackend::MakeWide() {
  return std::make_unique<TestCuda>(/*wide_attention=*/true);
}

Tensor TestBackend::Put(const std::vector<float>& values, int64_t columns, DType dtype) {
  const Tensor tensor = New(static_cast<int64_t>(values.size()) / columns, columns, dtype);
  Overwrite(tensor, values);
  return tensor;
}

Tensor TestBackend::Poisoned(int64_t rows, int64_t columns, DType dtype) {
  return Put(std::vector<float>(rows * columns, NAN), columns, dtype);
}

std::vector<float> Rounded(std::vector<float> values, DType dtype) {
  if (dtype == DType::kF32) return values;
  for (float& value : values) {
    value = dtype == DType::kBF16 ? Bf16ToFloat(FloatToBf16(value)) : F16ToFloat(FloatToF16(value));
  }
  return values;
}

double RelativeDistance(const std::vector<float>& got, const std::vector<float>& want) {
  COPPICE_CHECK(got.size() == want.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    difference += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    size += double{want[i]} * want[i];
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

}  // namespace coppice::kernels
