#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "comm/mpi_world.h"

namespace coppice::comm {
namespace {

TEST(SingleCommunicatorTest, EveryCollectiveIsTheIdentity) {
  auto single = MakeSingleCommunicator();
  EXPECT_EQ(single->rank(), 0);
  EXPECT_EQ(single->size(), 1);
  std::vector<float> data = {1, 2, 3}, all(3);
  EXPECT_TRUE(single->AllReduceSum(absl::MakeSpan(data)).ok());
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(single->Gather(data, absl::MakeSpan(all)).ok());
  EXPECT_EQ(all, data);
  std::vector<float> wrong(2);
  EXPECT_EQ(single->Gather(data, absl::MakeSpan(wrong)).code(), absl::StatusCode::kInvalidArgument);
  std::string text = "kept";
  EXPECT_TRUE(single->Broadcast(&text).ok());
  EXPECT_EQ(text, "kept");
  EXPECT_TRUE(single->Barrier().ok());
}

TEST(MpiWorldTest, LaunchedLooksAtTheEnvironment) {
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("PMIX_RANK");
  EXPECT_FALSE(MpiWorld::Launched());
  setenv("PMIX_RANK", "0", 1);
  EXPECT_TRUE(MpiWorld::Launched());
  unsetenv("PMIX_RANK");
}

}  // namespace
}  // namespace coppice::comm
