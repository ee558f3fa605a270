// Ranks as threads, each with a simulated device of its own. At the end no rule of the devices or of
// NCCL was broken.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/cuda/simulator/fake/fake_device.h"
#include "kernels/cuda/simulator/fake/fake_nccl.h"
#include "tests/kernels/cuda/rank_runners.h"

namespace coppice::model {

class RanksFixture : public testing::Test, protected RankRunners {
 protected:
  RanksFixture() {
    kernels::cuda::fake::Configure({.devices = 4});
    options_.backend = "cuda";
    options_.dtype = "f32";
    options_.kv_bytes = 1 << 20;
    options_.threads = 1;
    options_.max_rows = 64;
  }
  ~RanksFixture() override {
    EXPECT_THAT(kernels::cuda::fake::Violations(), testing::IsEmpty());
    kernels::cuda::fake::Configure({});
    kernels::cuda::fake::Recover();
    kernels::cuda::fake::RecoverNccl();
  }
};

// Files and sockets that this process has open.
inline int64_t CountOpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

}  // namespace coppice::model
