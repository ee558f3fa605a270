// The simulated device is as strict as it says, and the check of the device says what is missing.
#include "kernels/cuda/simulator/fake/fake_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/device_graph.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {
namespace {

using testing::HasSubstr;

class FakeDeviceTest : public testing::Test {
 protected:
  ~FakeDeviceTest() override {
    fake::Configure({});
    fake::Recover();
  }
  static std::string CheckMessage(const fake::DeviceSettings& settings) {
    fake::Configure(settings);
    const auto device = UseDevice();
    return device.ok() ? device->description : std::string(device.status().message());
  }

  DeviceStream stream_ = DeviceStream::Create("a test").value();
  DeviceBuffer device_ = DeviceBuffer::Allocate(100, "a test").value();
  PinnedBuffer pinned_ = PinnedBuffer::Allocate(100, "a test").value();
};

TEST_F(FakeDeviceTest, WorkRunsOnlyWhenSomebodyWaits) {
  DeviceEvent event = DeviceEvent::Create("a test").value();
  ASSERT_TRUE(stream_.FillZero(device_.data(), 100, "a test").ok());
  ASSERT_TRUE(stream_.CopyToHost(pinned_.data(), device_.data(), 100, "a test").ok());
  ASSERT_TRUE(event.Record(stream_, "a test").ok());
  EXPECT_EQ(pinned_.data()[0], 0xff);
  EXPECT_FALSE(event.Reached("a test").value());
  while (!event.Reached("a test").value()) {
  }
  EXPECT_EQ(pinned_.data()[0], 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);  // "not ready" is no error to a later launch
}

#if CUDART_VERSION >= 13000  // earlier ones do not tell
TEST_F(FakeDeviceTest, ADeviceThatIsSharedByMpsSaysSo) {
  EXPECT_EQ(CheckMessage({.mps = true}), "simulated device, 2 GiB, by MPS");
  EXPECT_EQ(CheckMessage({}), "simulated device, 2 GiB");
}
#endif

TEST_F(FakeDeviceTest, CopiesStayInsideOfBuffersAndOfPinnedMemory) {
  std::vector<uint8_t> pageable(100);
  EXPECT_FALSE(stream_.CopyToDevice(device_.data(), pinned_.data(), 101, "a test").ok());
  EXPECT_FALSE(stream_.CopyToDevice(device_.data(), pinned_.data() + 1, 100, "a test").ok());
  EXPECT_FALSE(stream_.CopyToDevice(device_.data(), pageable.data(), 100, "a test").ok());
  EXPECT_FALSE(stream_.CopyToHost(device_.data(), pinned_.data(), 100, "a test").ok());
  EXPECT_EQ(fake::Violations().size(), 4u);
}

TEST_F(FakeDeviceTest, TheHostCannotTouchDeviceMemoryNorAnybodyWhatLiesBehind) {
  fake::Configure({.protect = true});
  const DeviceBuffer device = DeviceBuffer::Allocate(512, "a test").value();
  EXPECT_DEATH(static_cast<volatile uint8_t*>(device.data())[0], "");
  EXPECT_DEATH(static_cast<volatile uint8_t*>(device_.data())[256], "");
}

TEST_F(FakeDeviceTest, MemoryEnds) {
  fake::Configure({.memory = 1000});
  const auto buffer = DeviceBuffer::Allocate(901, "a big thing");
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(buffer.status().message(), HasSubstr("a big thing: cudaMalloc of 901 bytes"));
  EXPECT_TRUE(DeviceBuffer::Allocate(900, "a big thing").ok());
}

// A stream is of the device that its maker used.
TEST_F(FakeDeviceTest, ThreadsOfAnotherDeviceQueueNoWork) {
  fake::Configure({.devices = 2});
  DeviceEvent event = DeviceEvent::Create("a test").value();
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const SoftCapArgs cap = {reinterpret_cast<float*>(device_.data()), 1, 1};
  EXPECT_FALSE(stream_.FillZero(device_.data(), 100, "a test").ok());
  SoftCap(cap, stream_.get());
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal),
            cudaErrorInvalidResourceHandle);
  DeviceEvent other = DeviceEvent::Create("a test").value();
  EXPECT_FALSE(other.Record(stream_, "a test").ok());
  EXPECT_EQ(fake::Violations().size(), 4u);
  cudaGetLastError();
  // Copies, and events of the stream's device, go to any stream.
  EXPECT_TRUE(stream_.CopyToHost(pinned_.data(), device_.data(), 100, "a test").ok());
  EXPECT_TRUE(event.Record(stream_, "a test").ok());
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_FALSE(other.Record(stream_, "a test").ok());
  cudaGetLastError();
  EXPECT_TRUE(stream_.FillZero(device_.data(), 100, "a test").ok());
  SoftCap(cap, stream_.get());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// What the runtime does not allow while a stream is captured shows, and spoils the graph.
TEST_F(FakeDeviceTest, CapturesRefuseWhatMayWait) {
  DeviceEvent event = DeviceEvent::Create("a test").value();
  const std::vector<std::function<absl::Status()>> refused = {
      [&] { return DeviceBuffer::Allocate(1, "a test").status(); },
      [&] { return PinnedBuffer::Allocate(1, "a test").status(); },
      [&] { return stream_.Synchronize("a test"); },
      [&] { return event.Reached("a test").status(); }};
  for (size_t i = 0; i < refused.size(); ++i) {
    const auto graph = DeviceGraph::Capture(&stream_, "a test", [&] {
      EXPECT_EQ(refused[i]().code(), absl::StatusCode::kInternal) << i;
      return absl::OkStatus();
    });
    EXPECT_THAT(graph.status().message(),
                HasSubstr("cudaStreamEndCapture: cudaErrorStreamCapture"));
    EXPECT_EQ(fake::Violations().size(), i + 1);
    EXPECT_TRUE(refused[i]().ok()) << i;  // as before
  }
  // Nor may memory be freed, or an event be asked for that is part of the graph.
  auto freed = std::make_optional(DeviceBuffer::Allocate(1, "a test").value());
  EXPECT_FALSE(DeviceGraph::Capture(&stream_, "a test", [&] {
                 freed.reset();
                 return event.Record(stream_, "a test");
               }).ok());
  EXPECT_THAT(event.Reached("a test").status().message(), HasSubstr("cudaErrorCapturedEvent"));
  EXPECT_EQ(fake::Violations().size(), refused.size() + 2);
  EXPECT_EQ(fake::CountLive().graphs, 0);
}

// Addresses are kept when work is recorded; what lies there is read when it is launched.
TEST_F(FakeDeviceTest, GraphsReadMemoryWhenTheyRun) {
  const fake::WorkCounts before = fake::CountWork();
  const DeviceGraph graph =
      DeviceGraph::Capture(&stream_, "a test", [&] {
        return stream_.CopyToDevice(device_.data(), pinned_.data(), 100, "a test");
      }).value();
  EXPECT_EQ(fake::CountWork().copies_up, before.copies_up);
  const PinnedBuffer back = PinnedBuffer::Allocate(100, "a test").value();
  for (const uint8_t value : {1, 2}) {
    pinned_.data()[50] = value;
    ASSERT_TRUE(graph.Launch(&stream_, "a test").ok());
    ASSERT_TRUE(stream_.CopyToHost(back.data(), device_.data(), 100, "a test").ok());
    EXPECT_NE(back.data()[50], value);
    ASSERT_TRUE(stream_.Synchronize("a test").ok());
    EXPECT_EQ(back.data()[50], value);
  }
  const fake::WorkCounts after = fake::CountWork();
  EXPECT_EQ(after.graph_launches - before.graph_launches, 2);
  EXPECT_EQ(after.recorded - before.recorded, 1);
  EXPECT_EQ(after.copies_down - before.copies_down, 2);
  EXPECT_EQ(after.bytes_down - before.bytes_down, 200u);
}

TEST_F(FakeDeviceTest, TheCheckSaysWhatIsMissing) {
  EXPECT_THAT(CheckMessage({.driver_version = 0}), HasSubstr("needs an NVIDIA driver"));
  EXPECT_THAT(CheckMessage({.driver_version = 12040}),
              HasSubstr("too old: it serves CUDA 12.4, this build needs 1"));
  EXPECT_THAT(CheckMessage({.devices = 0}), HasSubstr("finds no device"));
  EXPECT_THAT(CheckMessage({.name = "Tesla T4", .major = 7, .minor = 5}),
              HasSubstr("needs compute capability 8.0, Tesla T4 has 7.5"));
  EXPECT_THAT(CheckMessage({.name = "NVIDIA B200", .major = 10}),
              HasSubstr("kernels for compute capability 8.0 to 9.x, NVIDIA B200 has 10.0"));
  EXPECT_EQ(CheckMessage({.name = "NVIDIA H100 80GB HBM3", .memory = size_t{80994} << 20}),
            "NVIDIA H100 80GB HBM3, 79 GiB");
}

// As the tools of the driver write it: hexadecimal.
TEST_F(FakeDeviceTest, ADeviceIsKnownByItsPlaceOnTheBus) {
  fake::Configure({.pci_domain = 1, .pci_bus = 0xaf, .pci_device = 2});
  EXPECT_EQ(UseDevice()->pci_bus_id, "0001:af:02.0");
}

}  // namespace
}  // namespace coppice::kernels::cuda
