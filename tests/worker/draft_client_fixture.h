// A draft client, a sequence to draft for, and fake draft nodes on real sockets, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/channel.h"
#include "decoding/method.h"
#include "proto/convert.h"
#include "worker/draft_client.h"

namespace coppice::worker {

inline constexpr int kVocab = 16;

// Rows in which token `likely` has almost all probability.
class OneRow : public decoding::RowSource {
 public:
  explicit OneRow(TokenId likely) : logits_(kVocab, 0.0f) { logits_[likely] = 50; }
  absl::Span<const float> Logits(int) override { return logits_; }

 private:
  std::vector<float> logits_;
};

class FakeDraftNode {
 public:
  explicit FakeDraftNode(const std::string& endpoint)
      : channel_(*comm::ServerChannel::Bind(endpoint)) {}
  const std::string& endpoint() const { return channel_->endpoint(); }
  proto::DraftNode Announce(const std::string& id) const {
    proto::DraftNode node;
    node.set_node_id(id);
    node.set_endpoint(channel_->endpoint());
    return node;
  }
  // The next command of this kind; skips others. nullopt after 2 s.
  std::optional<proto::DraftCommand> Next(proto::DraftCommand::KindCase kind) {
    proto::DraftCommand command;
    for (int i = 0; i < 200; ++i) {
      if (auto peer = channel_->Receive(&command)) {
        peer_ = *peer;
        announced_ += command.kind_case() == proto::DraftCommand::kAnnounce ? 1 : 0;
        if (command.kind_case() == kind) return command;
        continue;
      }
      comm::Poll({channel_->socket()}, 10);
    }
    return std::nullopt;
  }
  int announced() const { return announced_; }  // announcements that Next has read
  void Send(const proto::DraftReply& reply) { ASSERT_TRUE(channel_->Send(peer_, reply).ok()); }

 private:
  std::unique_ptr<comm::ServerChannel> channel_;
  std::string peer_;
  int announced_ = 0;
};

inline proto::DraftReply ReplyTo(const proto::DraftRequest& request) {
  decoding::DraftForest forest = decoding::DraftForest::Empty(request.state().root_trie_size());
  forest.token = {3};
  forest.parent = {-1};
  forest.layer_begin = {0, 1};
  proto::DraftReply reply;
  reply.set_session_id(request.session_id());
  reply.set_round(request.round());
  *reply.mutable_forest() = proto::ForestToMessage(forest);
  return reply;
}

class DraftClientTest : public ::testing::TestWithParam<const char*> {
 protected:
  DraftClientTest() : DraftClientTest(GetParam()) {}
  explicit DraftClientTest(const std::string& endpoint) : node_(endpoint), other_(endpoint) {
    DraftClientOptions options;
    options.vocab_size = kVocab;
    options.max_deadline_s = 0.5;
    client_ = std::make_unique<DraftClient>(options);
    Begin(7, &sequence_);
  }
  void Begin(uint64_t id, Sequence* sequence) {
    sequence->id = id;
    sequence->prompt = {1, 2, 3};
    sequence->params.method = decoding::FindMethod("pf_gumbel");
    sequence->params.max_tokens = 50;
    sequence->draft = decoding::DraftSizeOf(sequence->params);
    sequence->decoder = *decoding::MakeBeamDecoder(sequence->params);
    Decide(sequence);
  }
  static void Decide(Sequence* sequence) {  // one plain layer
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
  // awake_until_s after an announcement that is on its way. Nothing else may arrive.
  double AwakeUntil(double now_s) {
    const double before_s = client_->awake_until_s();
    for (int i = 0; i < 200 && client_->awake_until_s() == before_s; ++i) {
      EXPECT_TRUE(client_->Receive(now_s).empty());
      const auto sockets = client_->sockets();
      comm::Poll(sockets, 10);
    }
    return client_->awake_until_s();
  }
  Fallback Ask(double now_s) { return client_->Ask(sequence_, 4, 2, now_s, &deadline_s_); }

  std::unique_ptr<DraftClient> client_;
  Sequence sequence_;
  double deadline_s_ = 0;
  FakeDraftNode node_, other_;
};

}  // namespace coppice::worker
