// One process counts what several compute on, leaders before draft nodes.
#include "node/energy/energy_claim.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace coppice::node {
namespace {

using Claimant = EnergyClaim::Claimant;

// Of this test alone, whatever else runs.
uint64_t Domain(int number) { return EnergyDomain("test", absl::StrCat(getpid(), "/", number)); }

TEST(EnergyClaimTest, DomainsDifferByKindAndPlace) {
  EXPECT_EQ(EnergyDomain("rapl", "/a"), EnergyDomain("rapl", "/a"));
  EXPECT_NE(EnergyDomain("rapl", "/a"), EnergyDomain("rapl", "/b"));
  EXPECT_NE(EnergyDomain("rapl", "/a"), EnergyDomain("nvml", "/a"));
  EXPECT_NE(EnergyDomain("rapl", "/a"), 0u);
}

TEST(EnergyClaimTest, OneLeaderHoldsAndTheNextTakesOver) {
  auto first = std::make_unique<EnergyClaim>(Domain(1), Claimant::kLeader);
  EnergyClaim second(Domain(1), Claimant::kLeader), elsewhere(Domain(2), Claimant::kLeader);
  EXPECT_TRUE(first->Holds());
  EXPECT_FALSE(second.Holds());
  EXPECT_TRUE(elsewhere.Holds());
  EXPECT_TRUE(first->Holds());
  first.reset();
  EXPECT_TRUE(second.Holds());
}

TEST(EnergyClaimTest, ALeaderGoesBeforeDraftNodes) {
  EnergyClaim draft(Domain(3), Claimant::kDraftNode), other(Domain(3), Claimant::kDraftNode);
  EXPECT_TRUE(draft.Holds());
  EXPECT_FALSE(other.Holds());
  {
    EnergyClaim leader(Domain(3), Claimant::kLeader);
    EXPECT_TRUE(leader.Holds());
    EXPECT_FALSE(draft.Holds());
    EXPECT_TRUE(leader.Holds());
  }
  EXPECT_TRUE(draft.Holds());
}

TEST(EnergyClaimTest, AProcessThatEndsWithoutAWordHoldsNothing) {
  const uint64_t domain = Domain(4);
  const pid_t child = fork();
  if (child == 0) {
    EnergyClaim claim(domain, Claimant::kLeader);
    _exit(claim.Holds() ? 3 : 4);  // no destructor
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 3);
  EXPECT_TRUE(EnergyClaim(domain, Claimant::kLeader).Holds());
}

}  // namespace
}  // namespace coppice::node
