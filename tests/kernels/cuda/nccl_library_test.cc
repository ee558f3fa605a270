// The NCCL of this machine, where it is installed: it is loaded and called as far as that goes without
// a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cuda/collectives/nccl_api.h"

namespace coppice::kernels::cuda {
namespace {

TEST(NcclLibrary, LoadsAndMakesIds) {
  const auto api = LoadNccl();
  ASSERT_TRUE(api.ok()) << api.status();
  int version = 0;
  ASSERT_EQ((*api)->get_version(&version), ncclSuccess);
  EXPECT_GE(version, 21800);  // collectives of communicators that do not block
  ncclUniqueId one, other;
  ASSERT_EQ((*api)->get_unique_id(&one), ncclSuccess);
  ASSERT_EQ((*api)->get_unique_id(&other), ncclSuccess);
  EXPECT_NE(std::memcmp(&one, &other, sizeof one), 0);
  EXPECT_STREQ((*api)->get_error_string(ncclSuccess), "no error");
}

// All functions of windows or none; since 2.27, all.
TEST(NcclLibrary, HasWindowsSinceTheyExist) {
  const NcclApi* api = LoadNccl().value();
  int version = 0;
  ASSERT_EQ(api->get_version(&version), ncclSuccess);
  EXPECT_EQ(api->has_windows(), version >= 22700);
  EXPECT_EQ(api->mem_free != nullptr, api->has_windows());
  EXPECT_EQ(api->comm_window_register != nullptr, api->has_windows());
  EXPECT_EQ(api->comm_window_deregister != nullptr, api->has_windows());
}

// Without a device a communicator cannot be made; the call says so and gives none.
TEST(NcclLibrary, JoiningNeedsADevice) {
  const NcclApi* api = LoadNccl().value();
  ncclUniqueId id;
  ASSERT_EQ(api->get_unique_id(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = api->comm_init_rank_config(&comm, 1, id, 0, &config);
  EXPECT_NE(api->get_error_string(result), nullptr);
  if (comm == nullptr) {
    EXPECT_NE(result, ncclSuccess);
  } else {
    api->comm_abort(comm);
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
