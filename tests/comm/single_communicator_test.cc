#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/collective_counter.h"
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

// On one of three ranks, whose collectives always succeed.
class OneOfThree : public Communicator {
 public:
  int rank() const override { return 1; }
  int size() const override { return 3; }
  absl::Status AllReduceSum(absl::Span<float> data) override {
    data[0] = 7;
    return absl::OkStatus();
  }
  absl::Status Gather(absl::Span<const float>, absl::Span<float>) override {
    return absl::OkStatus();
  }
  absl::Status Broadcast(std::string* data) override {
    *data = "hello";
    return absl::OkStatus();
  }
  absl::Status Barrier() override { return absl::UnavailableError("down"); }
};

TEST(CollectiveCounterTest, CountsThePayloadOfAllRanksAndPassesCallsOn) {
  CollectiveCounter counter(std::make_unique<OneOfThree>());
  std::vector<float> data = {1, 2, 3};
  EXPECT_TRUE(counter.AllReduceSum(absl::MakeSpan(data)).ok());
  EXPECT_EQ(data[0], 7);
  EXPECT_EQ(counter.bytes(), 3u * 12);
  EXPECT_TRUE(counter.Gather({data.data(), 2}, {}).ok());
  EXPECT_EQ(counter.bytes(), 3u * (12 + 8));
  std::string text;
  EXPECT_TRUE(counter.Broadcast(&text).ok());
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(counter.bytes(), 3u * (12 + 8 + 5));
  EXPECT_EQ(counter.Barrier().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(counter.rank(), 1);
  CollectiveCounter single(MakeSingleCommunicator());
  EXPECT_TRUE(single.AllReduceSum(absl::MakeSpan(data)).ok());
  EXPECT_EQ(single.bytes(), 0u);  // nothing went anywhere
}

TEST(MpiWorldTest, NamesTheFirstRankOfAnotherVersion) {
  const std::vector<MpiWorld::Peer> peers = {
      {Role::kWorker, "", 0, "a"}, {Role::kWorker, "", 1, "b"}, {Role::kDraft, "", 2, "c"}};
  EXPECT_TRUE(MpiWorld::SameBuilds(peers, {"x 1", "x 1", "x 1"}).ok());
  EXPECT_EQ(
      MpiWorld::SameBuilds(peers, {"x 1", "x 2", "x 3"}).message(),
      "rank 1 of 3 on b runs x 2, rank 0 of 3 on a runs x 1: every host needs the same version "
      "of Coppice");
  EXPECT_EQ(
      MpiWorld::SameBuilds(peers, {"x 1", "x 1", ""}).message(),
      "rank 2 of 3 on c runs an older version, rank 0 of 3 on a runs x 1: every host needs the "
      "same version of Coppice");
}

TEST(MpiWorldTest, ABuildIsAVersionAndTheFormOfTheMessages) {
  EXPECT_THAT(BuildName(), testing::MatchesRegex("coppice [0-9.]+, messages [0-9a-f]{8}"));
  EXPECT_EQ(BuildName(), BuildName());
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
