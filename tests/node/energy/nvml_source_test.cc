// The library of the NVIDIA driver, replaced by one that the test fills: which device is read, by
// its counter or by its power, and what ends the measuring.
#include "node/energy/nvml_source.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/node/energy/fake_nvml.h"

namespace coppice::node {
namespace {

using ::testing::HasSubstr;

constexpr char kBusId[] = "0000:3b:00.0";

class NvmlSourceTest : public ::testing::Test {
 protected:
  // Loaded here too: its state lives from test to test, so each begins with a new one.
  NvmlSourceTest() : handle_(dlopen(COPPICE_FAKE_NVML, RTLD_NOW | RTLD_LOCAL)) {
    using Get = FakeNvml* (*)();
    fake_ = reinterpret_cast<Get>(dlsym(handle_, "coppice_fake_nvml"))();
    *fake_ = FakeNvml();
  }
  ~NvmlSourceTest() override { dlclose(handle_); }
  absl::StatusOr<std::unique_ptr<EnergySource>> Open(const std::string& bus_id = kBusId) {
    return OpenNvml(COPPICE_FAKE_NVML, bus_id, &clock_);
  }

  void* handle_;
  FakeNvml* fake_;
  ManualClock clock_;
};

TEST_F(NvmlSourceTest, CountsFromItsOpeningInJoules) {
  auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_STREQ((*source)->kind(), "nvml");
  EXPECT_EQ((*source)->description(), "GPU 0000:3b:00.0");
  EXPECT_DOUBLE_EQ(*(*source)->Joules(), 0);
  fake_->energy_mj += 2500;
  EXPECT_DOUBLE_EQ(*(*source)->Joules(), 2.5);
  fake_->energy_mj += 500;
  EXPECT_DOUBLE_EQ(*(*source)->Joules(), 3);
  EXPECT_EQ(fake_->inits, 1);
  source->reset();
  EXPECT_EQ(fake_->shutdowns, 1);
}

TEST_F(NvmlSourceTest, WithoutACounterThePowerIsIntegrated) {
  fake_->energy_result = 3;
  fake_->power_mw = 100000;
  auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->description(), "GPU 0000:3b:00.0 by its power");
  clock_.now_s += 2;
  EXPECT_DOUBLE_EQ(*(*source)->Joules(), 200);
  fake_->power_mw = 300000;
  clock_.now_s += 0.5;
  EXPECT_DOUBLE_EQ(*(*source)->Joules(), 300);  // between 100 and 300 W
  EXPECT_DOUBLE_EQ(*(*source)->Joules(), 300);
  fake_->power_result = 15;
  EXPECT_EQ((*source)->Joules().status().message(), "nvmlDeviceGetPowerUsage: GPU is lost");
}

TEST_F(NvmlSourceTest, WhatCannotBeOpenedSaysWhy) {
  const auto message = [](const auto& opened) { return std::string(opened.status().message()); };
  EXPECT_THAT(message(OpenNvml("libno-such-nvml.so.1", kBusId, &clock_)),
              HasSubstr("libno-such-nvml.so.1"));
  // A library, and another one than NVML.
  EXPECT_THAT(message(OpenNvml("libdl.so.2", kBusId, &clock_)), HasSubstr("nvmlInit_v2"));
  EXPECT_EQ(message(Open("0000:af:00.0")),
            "nvmlDeviceGetHandleByPciBusId_v2 of 0000:af:00.0: GPU is lost");
  EXPECT_EQ(fake_->shutdowns, fake_->inits);
  fake_->init_result = 9;
  EXPECT_EQ(message(Open()), "nvmlInit_v2: GPU is lost");
  EXPECT_EQ(fake_->shutdowns, fake_->inits);
  fake_->init_result = 0;
  fake_->energy_result = 15;
  EXPECT_EQ(message(Open()), "nvmlDeviceGetTotalEnergyConsumption: GPU is lost");
  EXPECT_EQ(fake_->shutdowns, fake_->inits);
}

TEST_F(NvmlSourceTest, AnErrorOrAFallEndsTheMeasuring) {
  auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  fake_->energy_result = 15;
  EXPECT_EQ((*source)->Joules().status().message(),
            "nvmlDeviceGetTotalEnergyConsumption: GPU is lost");
  fake_->energy_result = 0;
  fake_->energy_mj = 999;
  EXPECT_EQ((*source)->Joules().status().message(),
            "nvmlDeviceGetTotalEnergyConsumption: fell from 1000 to 999 mJ");
}

}  // namespace
}  // namespace coppice::node
