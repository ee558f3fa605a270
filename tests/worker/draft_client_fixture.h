// For tests: a draft client and a sequence that it drafts for.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decoding/method.h"
#include "tests/worker/fake_draft_node.h"
#include "worker/draft_client.h"

namespace coppice::worker {

inline constexpr int kVocab = 16;

// Rows in which token `likely` has almost all the probability.
class OneRow : public sampling::RowSource {
 public:
  explicit OneRow(TokenId likely) : logits_(kVocab, 0.0f) { logits_[likely] = 50; }
  absl::Span<const float> Logits(int) override { return logits_; }

 private:
  std::vector<float> logits_;
};

class DraftClientTest : public ::testing::TestWithParam<const char*> {
 protected:
  DraftClientTest() : DraftClientTest(GetParam()) {}
  explicit DraftClientTest(const std::string& endpoint, DraftClientOptions options = {})
      : node_(endpoint), other_(endpoint) {
    options.vocab_size = kVocab;
    options.max_deadline_s = 0.5;
    client_ = std::make_unique<DraftClient>(options);
    Begin(7, &sequence_);
  }
  void Begin(uint64_t id, Sequence* sequence) {
    sequence->id = id;
    sequence->prompt = {1, 2, 3};
    sequence->params.method = decoding::FindMethod("gumbel_coupling");
    sequence->params.max_tokens = 50;
    sequence->draft = decoding::DraftSizeOf(sequence->params);
    sequence->decoder = *decoding::MakeBeamDecoder(sequence->params);
    Decide(sequence);
  }
  static void Decide(Sequence* sequence) {  // decides one plain layer
    OneRow rows(5);
    sequence->decoder->Advance(decoding::DraftForest::Empty(1), &rows);
    ++sequence->round;
  }
  void Decide() { Decide(&sequence_); }
  void Join(std::initializer_list<std::pair<FakeDraftNode*, std::string>> nodes) {
    proto::DraftNodes message;
    for (const auto& [node, id] : nodes) *message.add_nodes() = node->Announce(id);
    client_->SetNodes(message);
  }
  std::vector<DraftArrival> Arrivals(double now_s) {
    for (int i = 0; i < 200; ++i) {
      auto arrivals = client_->Receive(now_s);
      if (!arrivals.empty()) return arrivals;
      const auto sockets = client_->sockets();
      comm::Poll(sockets, 10);
    }
    return {};
  }
  void SendAnnouncement() {
    proto::DraftReply reply;
    reply.set_announces(true);
    node_.Send(reply);
  }
  // Waits for an announcement that was sent and returns awake_until_s. Nothing else may arrive.
  double AwakeUntil(double now_s) {
    const double before_s = client_->awake_until_s();
    for (int i = 0; i < 200 && client_->awake_until_s() == before_s; ++i) {
      EXPECT_TRUE(client_->Receive(now_s).empty());
      const auto sockets = client_->sockets();
      comm::Poll(sockets, 10);
    }
    return client_->awake_until_s();
  }
  // The node refuses the next request, and with it the session.
  void Refuse(FakeDraftNode* node) {
    const auto request = node->Next(proto::DraftCommand::kDraft);
    ASSERT_TRUE(request.has_value());
    proto::DraftReply reply;
    reply.set_session_id(request->draft().session_id());
    reply.set_error("all 1 sessions are taken");
    node->Send(reply);
  }
  // The node has read what it was sent with the next session that is opened on it.
  void TellRead(FakeDraftNode* node, double now_s) {
    const auto open = node->Next(proto::DraftCommand::kOpen);
    ASSERT_TRUE(open.has_value());
    proto::DraftReply reply;
    reply.set_session_id(open->open().session_id());
    reply.set_prefilled(true);
    node->Send(reply);
    for (int i = 0; i < 200 && client_->reading(); ++i) {
      EXPECT_TRUE(client_->Receive(now_s).empty());
      const auto sockets = client_->sockets();
      comm::Poll(sockets, 10);
    }
    EXPECT_FALSE(client_->reading());
  }
  NoDraftReason Ask(double now_s) { return client_->Ask(sequence_, 4, 2, now_s, &deadline_s_); }

  std::unique_ptr<DraftClient> client_;
  Sequence sequence_;
  double deadline_s_ = 0;
  FakeDraftNode node_, other_;
};

}  // namespace coppice::worker
