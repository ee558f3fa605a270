// The client's side of the draft of its own process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/local_channel.h"
#include "tests/worker/draft_client_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OwnDraftClientTest : public DraftClientTest {
 protected:
  OwnDraftClientTest() : DraftClientTest("direct://127.0.0.1:*") {
    comm::LocalChannels channels = comm::MakeLocalChannels();
    own_ = std::move(channels.server);
    client_->AddOwn(std::move(channels.client));
  }
  std::vector<std::string> NodeIds() const {
    std::vector<std::string> ids;
    for (const DraftNodeUse& use : client_->Nodes()) ids.push_back(use.node_id);
    return ids;
  }

  std::unique_ptr<comm::LocalServer> own_;
};

TEST_F(OwnDraftClientTest, ItStaysWhateverNodesTheCoordinatorNames) {
  Join({{&node_, "a"}});
  EXPECT_THAT(NodeIds(), ElementsAre("a", kOwnDraft));
  Join({{&other_, kOwnDraft}});  // the name is taken
  EXPECT_THAT(NodeIds(), ElementsAre(kOwnDraft));
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  proto::DraftCommand command;
  EXPECT_TRUE(own_->Receive(&command).has_value());
  EXPECT_TRUE(command.has_open());
}

TEST_F(OwnDraftClientTest, OnceBrokenItIsGone) {
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  own_->Close();
  const auto arrivals = client_->Receive(1.1);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kDead);
  EXPECT_THAT(NodeIds(), IsEmpty());
  EXPECT_THAT(client_->sockets(), IsEmpty());
  EXPECT_TRUE(client_->Receive(1.2).empty());
  Decide();
  EXPECT_EQ(Ask(9), NoDraftReason::kNoNode);
  Join({{&node_, "a"}});
  EXPECT_EQ(Ask(10), NoDraftReason::kReading);
}

}  // namespace
}  // namespace coppice::worker
