// For tests: a draft node's service with a tiny model on a real socket, and a leader that talks to
// it.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/channel.h"
#include "comm/communicator.h"
#include "decoding/method.h"
#include "draft_node/draft_service.h"
#include "proto/convert.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_runner.h"

namespace coppice::draft_node {

inline constexpr int kVocab = 24;
inline constexpr double kAlways = 1e9;  // seconds; no machine takes that long

// The leaders' channel.
class GatheringServer : public comm::ServerChannel {
 public:
  explicit GatheringServer(std::unique_ptr<comm::ServerChannel> channel)
      : channel_(std::move(channel)) {}
  // Of the next so many commands, Receive returns none before all have arrived. So one turn of the
  // service takes all of them.
  void Gather(size_t commands) { gathers_ = commands; }

  const std::string& endpoint() const override { return channel_->endpoint(); }
  absl::Status Send(const std::string& peer,
                    const google::protobuf::MessageLite& message) override {
    return channel_->Send(peer, message);
  }
  std::optional<std::string> Receive(google::protobuf::MessageLite* message) override {
    while (held_.size() < gathers_) {
      auto peer = channel_->Receive(message);
      if (!peer) return std::nullopt;
      held_.emplace_back(*peer, message->SerializeAsString());
    }
    gathers_ = 0;
    if (held_.empty()) return channel_->Receive(message);
    const auto [peer, bytes] = std::move(held_.front());
    held_.pop_front();
    EXPECT_TRUE(message->ParseFromString(bytes));
    return peer;
  }
  std::vector<std::string> TakeGone() override { return channel_->TakeGone(); }
  comm::Pollable socket() override {
    ++waits_;
    return channel_->socket();
  }
  // How often the service has waited for commands.
  int waits() const { return waits_; }
  const comm::ChannelCounters& counters() const override { return channel_->counters(); }

 private:
  const std::unique_ptr<comm::ServerChannel> channel_;
  size_t gathers_ = 0;
  int waits_ = 0;
  std::deque<std::pair<std::string, std::string>> held_;  // peers and their commands
};

class DraftServiceTest : public ::testing::TestWithParam<const char*> {
 protected:
  DraftServiceTest() : DraftServiceTest(GetParam()) {}
  explicit DraftServiceTest(const std::string& endpoint, int threads = 1)
      : DraftServiceTest(endpoint, [threads](const std::string& dir, comm::Communicator* single) {
          test::TinyLlamaOptions tiny;
          tiny.vocab = kVocab;
          tiny.layers = 1;
          return test::LoadTinyRunner(tiny, dir, single, threads);
        }) {}
  // With another draft model; load: from an empty folder.
  using Load =
      std::function<std::unique_ptr<model::ModelRunner>(const std::string&, comm::Communicator*)>;
  DraftServiceTest(const std::string& endpoint, const Load& load) {
    runner_ = load(dir_.path(), single_.get());
    leaders_ = std::make_unique<GatheringServer>(*comm::ServerChannel::Bind(endpoint));
    leader_ = *comm::ClientChannel::Connect(leaders_->endpoint());
    DraftServiceOptions service;
    service.announce_within_s = kAlways;
    service.max_sessions = 2;
    service.max_rows = 32;
    service.prefill_chunk = 16;
    service_ =
        std::make_unique<DraftService>(service, runner_.get(), leaders_.get(), nullptr, &clock_);
  }
  void Send(const proto::DraftCommand& command) { ASSERT_TRUE(leader_->Send(command).ok()); }
  void Open(uint64_t id, int prompt_length) {
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kBeamSampling;
    params.method = decoding::FindMethod("gumbel_coupling");
    params.beam_width = 2;
    Open(id, prompt_length, params);
  }
  void Open(uint64_t id, int prompt_length, const decoding::DecodingParams& params) {
    proto::DraftCommand command;
    command.mutable_open()->set_session_id(id);
    for (int i = 0; i < prompt_length; ++i) command.mutable_open()->add_prompt(3 + i % 20);
    *command.mutable_open()->mutable_decoding() = proto::DecodingToMessage(params);
    Send(command);
  }
  // A request with one root. `stable` are the generated tokens before it, all of which are sent;
  // `token` is its last token.
  static proto::DraftCommand Request(uint64_t id, uint32_t round,
                                     const std::vector<TokenId>& stable, size_t already_sent,
                                     TokenId token) {
    proto::DraftCommand command;
    proto::DraftRequest* request = command.mutable_draft();
    request->set_session_id(id);
    request->set_round(round);
    request->set_width(3);
    request->set_depth(2);
    request->set_stable_length(stable.size());
    for (size_t i = already_sent; i < stable.size(); ++i) request->add_stable_tokens(stable[i]);
    request->add_trie_parent(-1);
    request->add_trie_token(token);
    request->mutable_state()->add_root_trie(0);
    request->mutable_state()->add_root_score(-1.0);
    request->mutable_state()->add_root_multiplicity(2);
    request->mutable_state()->add_slot_root(0);
    request->mutable_state()->add_slot_root(0);
    request->mutable_state()->set_layers_committed(stable.size() + 1);
    return command;
  }
  static proto::DraftCommand Announcement() {
    proto::DraftCommand command;
    command.mutable_announce();
    return command;
  }
  // The next forest or failure. announced() counts the announcements that came before it,
  // prefilled() the prompts that were said to be read; with takes_prefilled_ these are replies too.
  std::optional<proto::DraftReply> Reply() { return ReplyTo(leader_.get()); }
  std::optional<proto::DraftReply> ReplyTo(comm::ClientChannel* leader) {
    proto::DraftReply reply;
    announced_ = prefilled_ = 0;
    for (int i = 0; i < 5000; ++i) {
      EXPECT_TRUE(service_->RunOnce(2).ok());
      while (leader->Receive(&reply)) {
        if (reply.prefilled() && !takes_prefilled_) {
          EXPECT_FALSE(reply.has_forest());
          EXPECT_FALSE(reply.has_energy_joules()) << "there is no meter";
          ++prefilled_;
          continue;
        }
        if (!reply.announces()) return reply;
        ++announced_;
        reply.clear_announces();
        EXPECT_EQ(reply.ByteSizeLong(), 0u) << reply.DebugString();
      }
    }
    return std::nullopt;
  }
  // Waits until so many prompts of the leader are read.
  void AwaitPrompts(comm::ClientChannel* leader, int count) {
    takes_prefilled_ = true;
    for (int i = 0; i < count; ++i) {
      const auto reply = ReplyTo(leader);
      ASSERT_TRUE(reply.has_value() && reply->prefilled());
    }
    takes_prefilled_ = false;
  }
  int announced() const { return announced_; }
  int prefilled() const { return prefilled_; }

  test::TempDir dir_;
  std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  SteadyClock clock_;
  std::unique_ptr<model::ModelRunner> runner_;
  std::unique_ptr<GatheringServer> leaders_;
  std::unique_ptr<comm::ClientChannel> leader_;
  std::unique_ptr<DraftService> service_;
  bool takes_prefilled_ = false;

 private:
  int announced_ = 0, prefilled_ = 0;
};

inline const auto kTransports = ::testing::Values("tcp://127.0.0.1:*", "direct://127.0.0.1:*");
inline std::string TransportName(const ::testing::TestParamInfo<const char*>& info) {
  return info.index == 0 ? "Zmq" : "Direct";
}

// Two roots. Each is below a different token, which is not a root.
inline proto::DraftCommand AskBelowTwoBranches(proto::DraftCommand command) {
  proto::DraftRequest* request = command.mutable_draft();
  request->clear_trie_parent();
  request->clear_trie_token();
  request->clear_state();
  for (int branch = 0; branch < 2; ++branch) {
    request->add_trie_parent(-1);
    request->add_trie_token(5 + branch);
    request->add_trie_parent(2 * branch);
    request->add_trie_token(8 + branch);
    request->mutable_state()->add_root_trie(2 * branch + 1);
    request->mutable_state()->add_root_score(-1.0);
    request->mutable_state()->add_root_multiplicity(1);
    request->mutable_state()->add_slot_root(branch);
  }
  request->mutable_state()->set_layers_committed(2);
  return command;
}

}  // namespace coppice::draft_node
