// States of the target for drafts that take them: what the leader sends to draft nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/local_channel.h"
#include "tests/worker/draft_client_fixture.h"
#include "tests/worker/states_node.h"

namespace coppice::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kStates = 77;  // fingerprint

struct SourceHolder {
  explicit SourceHolder(int columns) : source(columns) {}
  TokenStates source;
};

class DraftStatesTest : private SourceHolder, public DraftClientTest {
 protected:
  static constexpr char kEndpoint[] = "direct://127.0.0.1:*";
  explicit DraftStatesTest(int columns = 3)
      : SourceHolder(columns), DraftClientTest(kEndpoint, Options(&source)), columns_(columns) {
    for (int i = 0; i < 2; ++i) Restart(i);
  }
  static DraftClientOptions Options(StateSource* source) {
    DraftClientOptions options;
    options.states = source;
    options.states_fingerprint = kStates;
    return options;
  }
  TokenStates& states() { return source; }
  StatesNode& at(int i) { return *nodes_[i]; }
  void Restart(int i) {
    nodes_[i] = std::make_unique<StatesNode>(*comm::ServerChannel::Bind(kEndpoint), columns_,
                                             kVocab, Expected());
  }
  StatesNode::StateOfTokens Expected() const {
    return
        [columns = columns_](absl::Span<const TokenId> tokens) { return StateOf(tokens, columns); };
  }
  proto::DraftNode Entry(int i, uint64_t states = kStates) {
    proto::DraftNode entry = at(i).node()->Announce(i == 0 ? "a" : "b");
    entry.set_states(states);
    return entry;
  }
  void JoinNodes(std::vector<int> joined) {
    proto::DraftNodes message;
    for (const int i : joined) *message.add_nodes() = Entry(i);
    client_->SetNodes(message);
  }
  static decoding::DecodingParams Beams(int width, uint64_t seed) {
    decoding::DecodingParams params;
    params.kind =
        width == 1 ? sampling::DecodingKind::kMultinomial : sampling::DecodingKind::kBeamSampling;
    params.beam_width = params.num_hypotheses = width;
    params.max_tokens = 400;
    params.seed = seed;
    return params;
  }
  void BeginBeams(uint64_t id, int width, int prompt, Sequence* sequence) {
    sequence->id = id;
    for (int i = 0; i < prompt; ++i) sequence->prompt.push_back((i * 7 + width) % kVocab);
    sequence->params = Beams(width, id);
    sequence->params.method = decoding::FirstMethod(sequence->params).value();
    sequence->draft = decoding::DraftSizeOf(sequence->params);
    sequence->decoder = *decoding::MakeBeamDecoder(sequence->params);
  }
  // Decides layers from rows that differ, so that beams part and meet again.
  void DecideLayers(Sequence* sequence, int layers) {
    class RandomRows : public sampling::RowSource {
     public:
      RandomRows(int rows, std::mt19937* random) : logits_(rows, std::vector<float>(kVocab)) {
        std::normal_distribution<float> normal(0, 2);
        for (auto& row : logits_) {
          for (float& logit : row) logit = normal(*random);
        }
      }
      absl::Span<const float> Logits(int row) override { return logits_[row]; }

     private:
      std::vector<std::vector<float>> logits_;
    };
    for (int i = 0; i < layers && !sequence->decoder->finished(); ++i) {
      const int roots = static_cast<int>(sequence->decoder->roots().size());
      RandomRows rows(roots, &random_);
      sequence->decoder->Advance(decoding::DraftForest::Empty(roots), &rows);
    }
    ++sequence->round;
  }
  NoDraftReason AskFor(const Sequence& sequence, double now_s) {
    return client_->Ask(sequence, 4, 2, now_s, &deadline_s_);
  }
  // Begins a sequence of one beam and asks for its first draft, of which the node takes note.
  std::optional<proto::DraftRequest> FirstRequest(Sequence* sequence) {
    BeginBeams(1, 1, 5, sequence);
    client_->Open(*sequence);
    DecideLayers(sequence, 2);
    EXPECT_EQ(AskFor(*sequence, 1), NoDraftReason::kNone);
    return at(0).NextRequest();
  }
  // Sends states until none are left that can be read. Returns the turns.
  int SendAll(Sequence* sequence, double now_s) {
    int turns = 1;
    for (; client_->SendStates({&sequence, 1}) && turns < 1000; ++turns) {
      at(0).TakeAll();
      at(1).TakeAll();
      client_->Receive(now_s);
    }
    return turns;
  }
  void TellPrefilled(int i, uint64_t session) {
    proto::DraftReply reply;
    reply.set_session_id(session);
    reply.set_prefilled(true);
    at(i).node()->Send(reply);
  }

  const int columns_;
  std::mt19937 random_{17};
  std::array<std::unique_ptr<StatesNode>, 2> nodes_;
};

TEST_F(DraftStatesTest, ARequestBringsTheRowsThatTheNodeLacks) {
  JoinNodes({0});
  Sequence sequence;
  BeginBeams(1, /*width=*/1, /*prompt=*/20, &sequence);
  client_->Open(sequence);
  Sequence* const all[] = {&sequence};
  states().most_readable = 8;  // as the target reads its prompt
  EXPECT_FALSE(client_->SendStates(all));
  at(0).TakeAll();
  EXPECT_EQ(at(0).states_taken(), 7);
  EXPECT_FALSE(client_->SendStates(all));  // they are not sent again
  states().most_readable = 1000;
  EXPECT_FALSE(client_->SendStates(all));
  at(0).TakeAll();
  EXPECT_EQ(at(0).states_taken(), 19);
  for (const int layers : {1, 3, 1, 2}) {
    DecideLayers(&sequence, layers);
    const int taken = at(0).states_taken();
    const int reads = states().reads;
    ASSERT_EQ(AskFor(sequence, 1), NoDraftReason::kNone);
    EXPECT_EQ(states().reads, reads + 1);  // one call for a request
    const auto request = at(0).NextRequest();
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(at(0).states_taken(), taken + layers);
    at(0).node()->Send(at(0).Answer(*request));
    ASSERT_EQ(Arrivals(1).size(), 1u);
  }
  EXPECT_EQ(client_->state_bytes(), 26u * 3 * 2);
  EXPECT_GT(client_->bytes(), client_->state_bytes());
}

TEST_F(DraftStatesTest, APromptOfOneTokenHasNoRows) {
  JoinNodes({0});
  Sequence sequence;
  BeginBeams(1, 1, /*prompt=*/1, &sequence);
  client_->Open(sequence);
  Sequence* const all[] = {&sequence};
  EXPECT_FALSE(client_->SendStates(all));
  DecideLayers(&sequence, 1);
  ASSERT_EQ(AskFor(sequence, 1), NoDraftReason::kNone);
  ASSERT_TRUE(at(0).NextRequest().has_value());
  EXPECT_EQ(at(0).states_taken(), 1);
}

TEST_F(DraftStatesTest, WhatANodeDoesNotAnswerIsSentAgain) {
  JoinNodes({0});
  Sequence sequence;
  const auto first = FirstRequest(&sequence);
  ASSERT_TRUE(first.has_value());
  at(0).node()->Send(at(0).Answer(*first));
  ASSERT_EQ(Arrivals(1).size(), 1u);
  double now_s = 1;
  int expected = at(0).states_taken();
  for (const int rows : {2, 4 + 1, 6 + 1}) {  // from the second on the first root's too
    DecideLayers(&sequence, 2);
    ASSERT_EQ(AskFor(sequence, now_s), NoDraftReason::kNone);
    ASSERT_TRUE(at(0).NextRequest().has_value());
    EXPECT_EQ(at(0).states_taken(), expected += rows);
    client_->GaveUp(sequence.id, now_s);
    now_s += 2;
  }
}

TEST_F(DraftStatesTest, ANodeOfOtherStatesIsNotUsed) {
  proto::DraftNodes message;
  *message.add_nodes() = Entry(0, kStates + 1);
  client_->SetNodes(message);
  EXPECT_THAT(client_->Nodes(), IsEmpty());
  EXPECT_FALSE(client_->configured());
  EXPECT_EQ(Ask(1), NoDraftReason::kNoStates);
  *message.add_nodes() = Entry(1, 0);  // of an older version, or another kind of draft
  client_->SetNodes(message);
  EXPECT_TRUE(client_->configured());
  ASSERT_EQ(Ask(2), NoDraftReason::kNone);
  const auto request = at(1).node()->Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  EXPECT_FALSE(request->draft().has_states());
  EXPECT_EQ(states().reads, 0);
  EXPECT_EQ(client_->state_bytes(), 0u);
}

TEST_F(DraftStatesTest, WithoutStatesTheRoundIsPlain) {
  JoinNodes({0});
  states().fails = true;
  EXPECT_EQ(Ask(1), NoDraftReason::kReading);
  states().fails = false;
  states().most_readable = 2;
  EXPECT_EQ(Ask(1), NoDraftReason::kNoStates);
  states().most_readable = 1000;
  EXPECT_EQ(Ask(1), NoDraftReason::kNone);
}

// The node answers the request before it late. It has not computed the rows of that round.
TEST_F(DraftStatesTest, RowsOfARequestWhoseStatesCannotBeReadAreSentLater) {
  JoinNodes({0});
  Sequence sequence;
  const auto first = FirstRequest(&sequence);
  ASSERT_TRUE(first.has_value());
  client_->Withdraw(sequence.id);  // it was preempted
  DecideLayers(&sequence, 2);
  states().fails = true;
  EXPECT_EQ(AskFor(sequence, 2), NoDraftReason::kNoStates);
  states().fails = false;
  at(0).node()->Send(at(0).Answer(*first));
  for (int i = 0; i < 400 && client_->dropped().empty(); ++i) {
    comm::Poll(client_->sockets(), 5);
    client_->Receive(2.5);
  }
  EXPECT_EQ(client_->dropped().size(), 1u);
  const int taken = at(0).states_taken();
  DecideLayers(&sequence, 2);
  ASSERT_EQ(AskFor(sequence, 3), NoDraftReason::kNone);
  ASSERT_TRUE(at(0).NextRequest().has_value());
  EXPECT_EQ(at(0).states_taken(), taken + 4);
}

TEST_F(DraftStatesTest, AMovedSessionGetsAllRows) {
  JoinNodes({0});
  Sequence sequence;
  BeginBeams(1, 4, 30, &sequence);
  client_->Open(sequence);
  DecideLayers(&sequence, 3);
  ASSERT_EQ(AskFor(sequence, 1), NoDraftReason::kNone);
  ASSERT_TRUE(at(0).NextRequest().has_value());
  JoinNodes({1});  // the first one has left
  DecideLayers(&sequence, 4);
  EXPECT_EQ(AskFor(sequence, 2), NoDraftReason::kReading);
  SendAll(&sequence, 2);
  ASSERT_FALSE(at(1).NextRequest(50).has_value());
  EXPECT_TRUE(at(1).read(at(1).last_opened()));
  TellPrefilled(1, at(1).last_opened());
  for (int i = 0; i < 200 && client_->reading(); ++i) {
    client_->Receive(2.1);
    comm::Poll(client_->sockets(), 10);
  }
  DecideLayers(&sequence, 1);
  ASSERT_EQ(AskFor(sequence, 2.2), NoDraftReason::kNone);
  ASSERT_TRUE(at(1).NextRequest().has_value());
}

// Rounds with drafts, late ones, late answers, refusals, and nodes that leave or start anew.
TEST_F(DraftStatesTest, NoRowLacksItsStateWhateverHappens) {
  int requests = 0, unanswered = 0, refused = 0, gone = 0, late_answers = 0;
  for (const int width : {1, 4}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      Sequence sequence;
      BeginBeams(100 * width + seed, width, 3 + static_cast<int>(seed), &sequence);
      JoinNodes({0, 1});
      double now_s = 1000 * (100 * width + seed);
      client_->Receive(now_s);
      client_->Open(sequence);
      for (int round = 0; round < 40 && !sequence.decoder->finished(); ++round) {
        now_s += 3;
        DecideLayers(&sequence, 1 + static_cast<int>(random_() % 3));
        if (sequence.decoder->finished()) break;
        SendAll(&sequence, now_s);
        if (AskFor(sequence, now_s) != NoDraftReason::kNone) {
          SendAll(&sequence, now_s);
          for (int i = 0; i < 2; ++i) {
            ASSERT_FALSE(at(i).NextRequest(0).has_value());
            comm::Poll({at(i).node()->socket()}, 20);
            at(i).TakeAll();
          }
          for (int i = 0; i < 2; ++i) {
            if (client_->sessions_on(i == 0 ? "a" : "b") > 0 && at(i).last_opened() > 0)
              TellPrefilled(i, at(i).last_opened());
          }
          for (int i = 0; i < 20 && client_->reading(); ++i) {
            client_->Receive(now_s);
            comm::Poll(client_->sockets(), 5);
          }
          continue;
        }
        std::optional<proto::DraftRequest> request;
        int node = 1;
        for (int i = 0; i < 400 && !request.has_value(); ++i) {
          node = 1 - node;
          request = at(node).NextRequest(5);
        }
        ASSERT_TRUE(request.has_value());
        ++requests;
        switch (random_() % 8) {
          case 0:
          case 1:  // it comes too late, or never
            client_->GaveUp(sequence.id, now_s);
            if (random_() % 2 == 0) {
              at(node).node()->Send(at(node).Answer(*request));
              for (int i = 0; i < 20 && client_->dropped().empty(); ++i) {
                comm::Poll(client_->sockets(), 5);
                client_->Receive(now_s);
              }
              comm::Poll(client_->sockets(), 5);
              client_->Receive(now_s);
              ++late_answers;
            } else {
              ++unanswered;
            }
            break;
          case 2: {  // it refuses
            proto::DraftReply reply;
            reply.set_session_id(request->session_id());
            reply.set_round(request->round());
            reply.set_error("states of row 3: none have come");
            at(node).node()->Send(reply);
            ASSERT_EQ(Arrivals(now_s).size(), 1u);
            ++refused;
            break;
          }
          case 3:  // it starts anew
            Restart(node);
            JoinNodes({0, 1});
            ASSERT_EQ(Arrivals(now_s).size(), 1u);
            ++gone;
            break;
          default:
            at(node).node()->Send(at(node).Answer(*request));
            ASSERT_EQ(Arrivals(now_s).size(), 1u);
        }
      }
      client_->Close(sequence.id);
      at(0).TakeAll();
      at(1).TakeAll();
    }
  }
  EXPECT_GT(requests, 100);
  EXPECT_GT(unanswered, 5);
  EXPECT_GT(late_answers, 5);
  EXPECT_GT(refused, 5);
  EXPECT_GT(gone, 5);
}

// 2 KB a row, as of a large target.
class LongPromptStatesTest : public DraftStatesTest {
 protected:
  static constexpr int kPrompt = 6000;  // tokens
  LongPromptStatesTest() : DraftStatesTest(/*columns=*/1024) {}
};

// A message is not made before the one before it has left this process.
TEST_F(LongPromptStatesTest, ALongPromptIsSentAsTheNodeTakesIt) {
  JoinNodes({0});
  Sequence sequence;
  BeginBeams(1, 1, kPrompt, &sequence);
  client_->Open(sequence);
  DecideLayers(&sequence, 1);
  EXPECT_EQ(AskFor(sequence, 1), NoDraftReason::kReading);
  EXPECT_LT(client_->state_bytes(), 3u << 20);
  for (int i = 0; i < 1000 && !at(0).read(at(0).last_opened()); ++i) {
    Sequence* const all[] = {&sequence};
    client_->Receive(1);
    client_->SendStates(all);
    at(0).TakeAll();
  }
  EXPECT_EQ(client_->state_bytes(), (kPrompt - 1u) * 2048);
  EXPECT_LT(at(0).longest_message(), (1u << 20) + 2100);
  ASSERT_EQ(AskFor(sequence, 1), NoDraftReason::kNone);
  ASSERT_TRUE(at(0).NextRequest().has_value());
}

// Within a process it would be sent at once.
TEST_F(LongPromptStatesTest, ATurnSendsAFewMegabytes) {
  comm::LocalChannels channels = comm::MakeLocalChannels();
  client_->AddOwn(std::move(channels.client), /*takes_states=*/true);
  StatesNode own(std::move(channels.server), columns_, kVocab, Expected());
  Sequence sequence;
  BeginBeams(1, 1, kPrompt, &sequence);
  client_->Open(sequence);
  DecideLayers(&sequence, 1);
  EXPECT_EQ(AskFor(sequence, 1), NoDraftReason::kReading);
  EXPECT_EQ(client_->state_bytes(), 4u << 20);
  Sequence* const all[] = {&sequence};
  EXPECT_TRUE(client_->SendStates(all));
  EXPECT_EQ(client_->state_bytes(), 4u << 20);
  Sequence short_one;  // does not wait for the long one
  BeginBeams(2, 1, /*prompt=*/20, &short_one);
  client_->Open(short_one);
  DecideLayers(&short_one, 1);
  EXPECT_EQ(AskFor(short_one, 1), NoDraftReason::kNone);
  const uint64_t its_bytes = 20 * 2048;
  EXPECT_EQ(client_->state_bytes(), (4u << 20) + its_bytes);
  client_->Receive(1);  // the next turn
  EXPECT_TRUE(client_->SendStates(all));
  EXPECT_EQ(client_->state_bytes(), (8u << 20) + its_bytes);
  client_->Receive(1);
  EXPECT_FALSE(client_->SendStates(all));
  ASSERT_TRUE(own.NextRequest().has_value());  // of the short one
  own.TakeAll();
  EXPECT_TRUE(own.read(1));
  EXPECT_TRUE(own.read(2));
  ASSERT_EQ(AskFor(sequence, 1), NoDraftReason::kNone);
  ASSERT_TRUE(own.NextRequest().has_value());
}

}  // namespace
}  // namespace coppice::worker
