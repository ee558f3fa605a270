// Requests that a draft node refuses by name; it lives on and serves the next ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "draft_node/draft_service.h"
#include "tests/draft_node/draft_service_fixture.h"

namespace coppice::draft_node {
namespace {

TEST_P(DraftServiceTest, RefusesWhatItCannotServeByName) {
  Send(Request(9, 1, {}, 0, 5));
  EXPECT_NE(Reply()->error().find("unknown session"), std::string::npos);
  Open(1, 4);
  Open(2, 4);
  Open(3, 4);
  EXPECT_NE(Reply()->error().find("all 2 sessions"), std::string::npos);
  proto::DraftCommand command = Request(1, 1, {}, 0, kVocab);
  Send(command);
  EXPECT_NE(Reply()->error().find("trie_token"), std::string::npos);
  Send(Request(2, 1, {5, 6}, 1, 7));  // the first stable token never came
  EXPECT_NE(Reply()->error().find("stable_length"), std::string::npos);
  Open(3, 4);
  command = Request(3, 1, {}, 0, 5);
  for (int i = 0; i < 2; ++i) {
    command.mutable_draft()->mutable_state()->add_slot_token(kVocab - i);
    command.mutable_draft()->mutable_state()->add_slot_log_prob(-1);
  }
  Send(command);
  EXPECT_NE(Reply()->error().find("slot_token"), std::string::npos);
  Open(3, 4);
  command = Request(3, 1, {}, 0, 5);
  command.mutable_draft()->mutable_state()->add_known_root(0);
  command.mutable_draft()->mutable_state()->add_known_child()->set_token(kVocab);
  Send(command);
  EXPECT_NE(Reply()->error().find("known_child"), std::string::npos);
  // A failed session is closed, so both places are free again.
  Open(4, 4);
  Open(5, 4);
  Send(Request(5, 1, {}, 0, 5));
  EXPECT_EQ(Reply()->error(), "");
}

// This draft model is an independent one.
TEST_P(DraftServiceTest, StatesThatTheDraftDoesNotTakeAreRefused) {
  Open(1, 4);
  Open(2, 4);
  proto::DraftCommand command = Request(1, 1, {}, 0, 5);
  command.mutable_draft()->mutable_states()->add_trie(0);
  Send(command);
  EXPECT_THAT(Reply()->error(), ::testing::HasSubstr("states: the draft model of this node"));
  command.mutable_states()->set_session_id(2);
  command.mutable_states()->mutable_states()->set_first(1);
  command.mutable_states()->mutable_states()->set_count(1);
  Send(command);
  const auto reply = Reply();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->session_id(), 2u);
  EXPECT_THAT(reply->error(), ::testing::HasSubstr("states: the draft model of this node"));
  Send(command);  // the session is closed
  EXPECT_THAT(Reply()->error(), ::testing::HasSubstr("unknown session"));
  Open(1, 4);
  Send(Request(1, 1, {}, 0, 5));
  EXPECT_EQ(Reply()->error(), "");
}

TEST_P(DraftServiceTest, ShapesBeyondAPassAreRefused) {
  Open(1, 4);
  proto::DraftCommand command = Request(1, 1, {}, 0, 5);
  command.mutable_draft()->set_width(16);
  command.mutable_draft()->set_depth(16);
  Send(command);
  EXPECT_NE(Reply()->error().find("width x depth"), std::string::npos);
}

TEST_P(DraftServiceTest, WhatIsBeyondTheDraftModelsContextIsRefusedAndTheNodeLivesOn) {
  const int positions = runner_->config().max_positions;
  Open(1, positions + 1);
  EXPECT_NE(Reply()->error().find("prompt"), std::string::npos);
  Open(2, positions - 2);
  Send(Request(2, 1, {}, 0, 5));  // the root and one level below it just fit
  EXPECT_EQ(Reply()->error(), "");
  Send(Request(2, 2, {5}, 0, 6));
  EXPECT_NE(Reply()->error().find("positions"), std::string::npos);
  Open(3, 4);
  Send(Request(3, 1, {}, 0, 5));
  EXPECT_EQ(Reply()->error(), "");
}

TEST_P(DraftServiceTest, MoreRootsThanBeamsAreRefusedAndTheNodeLivesOn) {
  decoding::DecodingParams params;
  uint64_t id = 0;
  for (const char* method :
       {"recursive_rejection", "block_verification", "mjsd", "bild", "gumbel_coupling"}) {
    params.method = decoding::FindMethod(method);
    Open(++id, 4, params);
    proto::DraftCommand command = Request(id, 1, {}, 0, 5);
    command.mutable_draft()->set_width(1);
    command.mutable_draft()->clear_state();
    command.mutable_draft()->add_trie_parent(-1);
    command.mutable_draft()->add_trie_token(6);
    for (int root = 0; root < 2; ++root) {
      command.mutable_draft()->mutable_state()->add_root_trie(root);
      command.mutable_draft()->mutable_state()->add_root_score(-1.0);
      command.mutable_draft()->mutable_state()->add_root_multiplicity(1);
    }
    Send(command);
    const auto reply = Reply();
    ASSERT_TRUE(reply.has_value()) << method;
    EXPECT_NE(reply->error().find("2 roots"), std::string::npos) << method << reply->error();
  }
}

// A pass would write the KV of one token twice.
TEST_P(DraftServiceTest, TwoRootsOfTheSameTokensAreRefusedAndTheNodeLivesOn) {
  Open(1, 4);
  proto::DraftCommand command = AskBelowTwoBranches(Request(1, 1, {}, 0, 0));
  command.mutable_draft()->set_trie_token(2, 5);
  command.mutable_draft()->set_trie_token(3, 8);
  Send(command);
  EXPECT_THAT(Reply()->error(), ::testing::HasSubstr("root_trie[1]: has the tokens of another"));
  Open(2, 4);
  Send(Request(2, 1, {}, 0, 5));
  EXPECT_EQ(Reply()->error(), "");
}

TEST_P(DraftServiceTest, TokensThatLeadToNoRootAreRefusedAndTheNodeLivesOn) {
  Open(1, 4);
  proto::DraftCommand command = AskBelowTwoBranches(Request(1, 1, {}, 0, 0));
  command.mutable_draft()->mutable_state()->set_root_trie(1, 0);
  Send(command);
  EXPECT_THAT(Reply()->error(), ::testing::HasSubstr("trie_token[3]: leads to no root"));
  Open(2, 4);
  Send(Request(2, 1, {}, 0, 5));
  EXPECT_EQ(Reply()->error(), "");
}

TEST_P(DraftServiceTest, ARequestThatTakesSharedTokensBackIsRefusedAndTheNodeLivesOn) {
  Open(1, 4);
  proto::DraftCommand command = Request(1, 1, {}, 0, 5);
  for (int i = 0; i < 3; ++i) {  // the only root has four tokens, of which three are shared
    command.mutable_draft()->add_trie_parent(i);
    command.mutable_draft()->add_trie_token(6 + i);
  }
  command.mutable_draft()->mutable_state()->set_root_trie(0, 3);
  Send(command);
  EXPECT_EQ(Reply()->error(), "");
  Send(Request(1, 2, {}, 0, 5));  // repeats none of the shared tokens
  EXPECT_NE(Reply()->error().find("stable_length"), std::string::npos);
  Open(2, 4);
  Send(Request(2, 1, {}, 0, 5));
  EXPECT_EQ(Reply()->error(), "");
}

}  // namespace
}  // namespace coppice::draft_node
