// A draft node on a real socket. The test decides its answers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/channel.h"
#include "decoding/forest.h"
#include "proto/convert.h"

namespace coppice::worker {

class FakeDraftNode {
 public:
  explicit FakeDraftNode(const std::string& endpoint)
      : FakeDraftNode(*comm::ServerChannel::Bind(endpoint)) {}
  explicit FakeDraftNode(std::unique_ptr<comm::ServerChannel> channel)
      : channel_(std::move(channel)) {}
  const std::string& endpoint() const { return channel_->endpoint(); }
  proto::DraftNode Announce(const std::string& id) const {
    proto::DraftNode node;
    node.set_node_id(id);
    node.set_endpoint(channel_->endpoint());
    return node;
  }
  // The next command of this kind. Others are skipped. Returns nullopt after 2 s.
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
  // The next command, if one has arrived.
  std::optional<proto::DraftCommand> TryNext() {
    proto::DraftCommand command;
    const auto peer = channel_->Receive(&command);
    if (!peer) return std::nullopt;
    peer_ = *peer;
    return command;
  }
  // The requests for drafts that have arrived. Other commands are skipped.
  std::vector<proto::DraftRequest> Requests() {
    std::vector<proto::DraftRequest> requests;
    proto::DraftCommand command;
    while (auto peer = channel_->Receive(&command)) {
      peer_ = *peer;
      if (command.has_draft()) requests.push_back(command.draft());
    }
    return requests;
  }
  comm::Pollable socket() { return channel_->socket(); }
  int announced() const { return announced_; }  // announcements that Next has read
  void Send(const proto::DraftReply& reply) { ASSERT_TRUE(channel_->Send(peer_, reply).ok()); }

 private:
  std::unique_ptr<comm::ServerChannel> channel_;
  std::string peer_;
  int announced_ = 0;
};

inline proto::DraftReply ReplyTo(const proto::DraftRequest& request) {
  decoding::DraftForest forest = decoding::DraftForest::Empty(request.state().root_trie_size());
  forest.Add(RootId{0}, 3);
  forest.layer_begin = {0, 1};
  proto::DraftReply reply;
  reply.set_session_id(request.session_id());
  reply.set_round(request.round());
  *reply.mutable_forest() = proto::ForestToMessage(forest);
  return reply;
}

}  // namespace coppice::worker
