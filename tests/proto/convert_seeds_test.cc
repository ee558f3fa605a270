// The fuzzer of conversions over its seeds, valid messages, and random changes of both.
// COPPICE_WRITE_SEEDS=1 also writes the valid messages into the folder of seeds.
#include <cstdlib>
#include <fstream>

#include "tests/proto/sample_inputs.h"
#include "tests/testing/fuzz_seeds.h"

namespace coppice::proto {
namespace {

constexpr char kSeeds[] = "tests/proto/seeds";

TEST(ConvertSeeds, EverySeedAndEveryChangeIsRefusedOrComesBack) {
  const std::map<std::string, std::string> samples = SampleInputs();
  if (std::getenv("COPPICE_WRITE_SEEDS") != nullptr) {
    for (const auto& [name, bytes] : samples)
      std::ofstream(std::string(kSeeds) + "/" + name, std::ios::binary) << bytes;
  }
  std::vector<std::string> seeds = test::ReadSeeds({kSeeds});
  ASSERT_GE(seeds.size(), samples.size());
  for (const auto& [name, bytes] : samples) seeds.push_back(bytes);
  test::RunSeedsAndChanges(seeds, 20000);
}

// So that changes of the samples reach the code behind the checks.
TEST(ConvertSeeds, TheSamplesAreAccepted) {
  EXPECT_TRUE(DecodingFromMessage(DecodingToMessage(SampleParams())).ok());
  EXPECT_TRUE(ForestFromMessage(ForestToMessage(SampleForest()), kSampleVocabulary).ok());
  EXPECT_TRUE(
      DraftRequestFromMessage(DraftRequestToMessage(SampleRequest()), kSampleVocabulary).ok());
  EXPECT_TRUE(CheckPlan(*PlanFromMessage(PlanToMessage(SamplePlan())), SampleLimits()).ok());
  EXPECT_TRUE(CheckDraftTimes(SampleReply()).ok());
  EXPECT_TRUE(ProgressFromMessage(SampleUpdate(false), SampleProgressLimits()).ok());
  EXPECT_TRUE(ProgressFromMessage(SampleUpdate(true), ScoredProgressLimits()).ok());
  EXPECT_TRUE(CheckRegistration(SampleRegistration(proto::WORKER_LEADER)).ok());
  EXPECT_TRUE(CheckRegistration(SampleRegistration(proto::DRAFT_NODE)).ok());
  EXPECT_TRUE(CheckNodeStatus(SampleStatus()).ok());
}

}  // namespace
}  // namespace coppice::proto
