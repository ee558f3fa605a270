// The tuner over the simulated device, whose clock says what each algorithm costs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/products/product_tuner.h"
#include "kernels/cuda/runtime/cuda_weights.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "tests/testing/temp_dir.h"

namespace coppice::kernels::cuda {

class ProductTunerTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 72, kRoom = 96;  // of the tensors, and what they have memory for
  ProductTunerTest() {
    settings_.protect = true;
    settings_.work_us = 1000;  // of the skinny kernel, too: it never wins
    settings_.product_us = [this](const fake::FakeProduct& product) {
      asked_.push_back(product);
      return cost_(product);
    };
    fake::Configure(settings_);
    products_ = MatrixProducts::Create(&stream_).value();
  }
  ~ProductTunerTest() override {
    products_.reset();
    EXPECT_THAT(fake::Violations(), testing::IsEmpty());
    fake::Configure({});
    fake::Recover();
  }

  static int64_t TimingCalls() { return fake::CountCallsOf("cudaEventElapsedTime"); }
  void Configure() { fake::Configure(settings_); }

  // A product of the pass with `layers` weights.
  void Add(int layers, int64_t outputs, int64_t inputs, DType y_type, bool accumulate = false,
           bool bias = false, DType type = DType::kBF16) {
    const Tensor x = Make(inputs, type), y = Make(outputs, y_type);
    for (int layer = 0; layer < layers; ++layer) {
      auto w = std::make_unique<CudaWeight>();
      w->rows = outputs;
      w->columns = inputs;
      w->dtype = type;
      w->values = DeviceBuffer::Allocate(outputs * inputs * DTypeSize(type), "a test").value();
      if (bias) w->bias = DeviceBuffer::Allocate(outputs * sizeof(float), "a test").value();
      pass_.push_back({w.get(), x, y, accumulate});
      weights_.push_back(std::move(w));
    }
  }
  Tensor Make(int64_t columns, DType dtype) {
    buffers_.push_back(
        DeviceBuffer::Allocate(kRoom * columns * DTypeSize(dtype), "a test").value());
    return {buffers_.back().data(), dtype, kRows, columns};
  }

  std::vector<RowCost> Tune() {
    asked_.clear();
    const auto costs =
        TuneProducts({pass_, folder_, [this] { ++moves_; }}, device_, &stream_, products_.get());
    EXPECT_TRUE(costs.ok()) << costs.status();
    return costs.value_or(std::vector<RowCost>());
  }
  // As after a start of the process.
  void StartAnew() { products_ = MatrixProducts::Create(&stream_).value(); }
  std::string Path() const {
    return TuningFilePath(TuningFolder(folder_), {device_.name, device_.multiprocessors, 130100,
                                                  products_->workspace_bytes()});
  }
  ProductTable Kept() const {
    return ReadTuningFile(Path(), {device_.name, device_.multiprocessors, 130100,
                                   products_->workspace_bytes()})
        .value();
  }
  // The algorithm and the rows that a step takes.
  fake::FakeProduct InAStep(int product, int64_t rows) {
    asked_.clear();
    EXPECT_TRUE(products_->Enqueue(ArgsOf(pass_[product], rows)).ok());
    EXPECT_TRUE(stream_.Synchronize("a test").ok());
    return asked_.empty() ? fake::FakeProduct{-1, rows} : asked_.back();
  }

  test::TempDir dir_;
  std::string folder_ = dir_.path() + "/cache";
  fake::DeviceSettings settings_;
  std::function<double(const fake::FakeProduct&)> cost_ = [](const fake::FakeProduct&) {
    return 10.0;
  };
  std::vector<fake::FakeProduct> asked_;
  const DeviceFacts device_ = UseDevice().value();
  DeviceStream stream_ = DeviceStream::Create("a test").value();
  std::vector<std::unique_ptr<CudaWeight>> weights_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<PassProduct> pass_;
  std::unique_ptr<MatrixProducts> products_;
  int moves_ = 0;
};

}  // namespace coppice::kernels::cuda
