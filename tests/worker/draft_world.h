// For tests: draft clients of several replicas and draft nodes on real sockets, in simulated time.
// Sequences decide rounds for ever: a draft, then a pass of the target; or a plain round.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/draft_client_fixture.h"

namespace coppice::worker {

// Seconds. A level takes level_s with one session.
struct NodeSpeed {
  double message_s = 0.0002, level_s = 0.001, token_s = 0.0001;
  double session_s = 0.0002;  // each further session adds to a level
};

class DraftWorld {
 public:
  static constexpr double kPass_s = 0.01;
  static constexpr int kDepth = 4;

  struct Node {
    std::string id;
    NodeSpeed speed;
    std::unique_ptr<comm::ServerChannel> channel;
    std::map<std::pair<std::string, uint64_t>, double>
        sessions;  // until when each reads its tokens
    double stopped_until_s = 0;
    int drafts = 0;            // requests that it has got
    bool loses_opens = false;  // it never says that it has read a prompt
  };
  struct Run {
    Sequence sequence;
    int client = 0;
    double deadline_s = 0;
    bool waits = false;
    uint64_t drafted = 0, plain = 0;
    std::map<NoDraftReason, int> reasons;
  };

  // ready: the nodes that all replicas know from the start.
  DraftWorld(int clients, const std::map<std::string, NodeSpeed>& speeds,
             const std::set<std::string>& ready) {
    for (const auto& [id, speed] : speeds) {
      nodes_[id].id = id;
      nodes_[id].speed = speed;
      nodes_[id].channel = *comm::ServerChannel::Bind("direct://127.0.0.1:*");
    }
    for (int i = 0; i < clients; ++i) {
      DraftClientOptions options;
      options.vocab_size = kVocab;
      options.max_deadline_s = 0.5;
      options.order_seed = i;
      clients_.push_back(std::make_unique<DraftClient>(options));
    }
    ready_ = ready;
    Tell();
  }

  Node& node(const std::string& id) { return nodes_.at(id); }
  DraftClient& client(int i) { return *clients_[i]; }
  Run& run(uint64_t id) { return *runs_.at(id); }
  double now_s() const { return now_s_; }
  int sessions(const std::string& id) const {
    int sum = 0;
    for (const auto& client : clients_) sum += client->sessions_on(id);
    return sum;
  }
  uint64_t moves(DraftMove why) const {
    uint64_t sum = 0;
    for (const auto& client : clients_) {
      const auto found = client->moves().find(why);
      sum += found == client->moves().end() ? 0 : found->second;
    }
    return sum;
  }

  void Join(const std::string& id) {
    ready_.insert(id);
    Tell();
  }
  // It leaves: by kill, or drained.
  void Leave(const std::string& id, bool kill) {
    if (kill) nodes_.at(id).channel.reset();
    ready_.erase(id);
    nodes_.at(id).sessions.clear();
    Tell();
    for (size_t i = 0; i < clients_.size(); ++i) Take(static_cast<int>(i));
  }
  void Stop(const std::string& id, double seconds) { node(id).stopped_until_s = now_s_ + seconds; }

  // A sequence of the replica that begins now.
  void Begin(int client, uint64_t id, int prompt = 100, int max_tokens = 1000000) {
    auto run = std::make_unique<Run>();
    Sequence& sequence = run->sequence;
    run->client = client;
    sequence.id = id;
    sequence.prompt.assign(prompt, 1);
    sequence.params.method = decoding::FindMethod("gumbel_coupling");
    sequence.params.max_tokens = max_tokens;
    sequence.draft = decoding::DraftSizeOf(sequence.params);
    sequence.decoder = *decoding::MakeBeamDecoder(sequence.params);
    runs_[id] = std::move(run);
    Take(client);  // as the engine does before it admits a sequence
    clients_[client]->Open(sequence);
    Settle();
    Later(kPass_s, [this, id] { Decide(id, /*drafted=*/false); });
  }
  void End(uint64_t id) {
    clients_[run(id).client]->Close(id);
    runs_.erase(id);
    Settle();
  }
  void Advance(double seconds) {
    const double until_s = now_s_ + seconds;
    while (!events_.empty() && events_.begin()->first.first <= until_s) {
      const auto event = std::move(events_.begin()->second);
      now_s_ = events_.begin()->first.first;
      events_.erase(events_.begin());
      event();
    }
    now_s_ = until_s;
  }
  // Layers of all sequences: three for a round with a draft, one for a plain one.
  uint64_t Layers() const {
    uint64_t sum = 0;
    for (const auto& [id, run] : runs_) sum += 3 * run->drafted + run->plain;
    return sum;
  }

 private:
  void Later(double seconds, std::function<void()> event) {
    events_[{now_s_ + seconds, ++last_event_}] = std::move(event);
  }
  void Tell() {
    proto::DraftNodes message;
    for (const std::string& id : ready_) {
      proto::DraftNode* node = message.add_nodes();
      node->set_node_id(id);
      node->set_endpoint(nodes_.at(id).channel->endpoint());
    }
    for (const auto& client : clients_) client->SetNodes(message);
  }

  void Decide(uint64_t id, bool drafted) {
    if (runs_.count(id) == 0) return;
    Run& run = *runs_.at(id);
    Sequence& sequence = run.sequence;
    OneRow rows(5);
    if (sequence.round > 0) ++(drafted ? run.drafted : run.plain);
    sequence.decoder->Advance(decoding::DraftForest::Empty(1), &rows);
    ++sequence.round;
    if (sequence.decoder->finished()) return End(id);
    const NoDraftReason why =
        clients_[run.client]->Ask(sequence, 1, kDepth, now_s_, &run.deadline_s);
    drafts_asked_ += why == NoDraftReason::kNone;
    Settle();
    if (why != NoDraftReason::kNone) {
      ++run.reasons[why];
      return Later(kPass_s, [this, id] { Decide(id, false); });
    }
    run.waits = true;
    const uint32_t round = sequence.round;
    Later(run.deadline_s - now_s_, [this, id, round] { GiveUp(id, round); });
  }
  void GiveUp(uint64_t id, uint32_t round) {
    if (runs_.count(id) == 0 || !run(id).waits || run(id).sequence.round != round) return;
    run(id).waits = false;
    clients_[run(id).client]->GaveUp(id, now_s_);
    Later(kPass_s, [this, id] { Decide(id, false); });
  }
  void Take(int client) {
    for (const DraftArrival& arrival : clients_[client]->Receive(now_s_)) {
      const uint64_t id = arrival.sequence_id;
      if (runs_.count(id) == 0) continue;
      run(id).waits = false;
      const bool drafted = arrival.failed == NoDraftReason::kNone;
      Later(kPass_s, [this, id, drafted] { Decide(id, drafted); });
    }
  }

  // Until the nodes have got all that the clients have sent.
  void Settle() {
    for (int i = 0; i < 400; ++i) {
      bool done = true;
      int drafts = 0;
      for (auto& [id, node] : nodes_) {
        if (node.channel != nullptr) Read(&node);
        drafts += node.drafts;
        done &= static_cast<int>(node.sessions.size()) == sessions(id);
      }
      if (done && drafts == drafts_asked_) return;
      std::vector<comm::Pollable> sockets;
      for (auto& [id, node] : nodes_)
        if (node.channel != nullptr) sockets.push_back(node.channel->socket());
      comm::Poll(sockets, 5);
    }
    ADD_FAILURE() << "messages were lost";
  }
  void Read(Node* node) {
    proto::DraftCommand command;
    while (const auto peer = node->channel->Receive(&command)) {
      if (command.has_open()) {
        const int tokens = command.open().prompt_size() + command.open().stable_tokens_size();
        const double until_s = now_s_ + tokens * node->speed.token_s;
        node->sessions[{*peer, command.open().session_id()}] = until_s;
        proto::DraftReply reply;
        reply.set_session_id(command.open().session_id());
        reply.set_prefilled(true);
        if (!node->loses_opens) SendAt(node, *peer, until_s, reply);
      } else if (command.has_close()) {
        node->sessions.erase({*peer, command.close().session_id()});
      } else if (command.has_draft()) {
        ++node->drafts;
        const NodeSpeed& speed = node->speed;
        const double level_s =
            speed.level_s + speed.session_s * (static_cast<int>(node->sessions.size()) - 1);
        const double draft_s = command.draft().depth() * level_s;
        proto::DraftReply reply = ReplyTo(command.draft());
        reply.set_draft_ms(draft_s * 1e3);
        SendAt(node, *peer,
               std::max(now_s_, node->sessions[{*peer, command.draft().session_id()}]) + draft_s +
                   speed.message_s,
               reply);
      }
    }
  }
  void SendAt(Node* node, const std::string& peer, double at_s, proto::DraftReply reply) {
    Later(at_s - now_s_, [this, node, peer, reply]() mutable {
      if (node->channel == nullptr || ready_.count(node->id) == 0) return;
      if (now_s_ < node->stopped_until_s) return SendAt(node, peer, node->stopped_until_s, reply);
      if (node->sessions.count({peer, reply.session_id()}) == 0) return;
      reply.set_sessions(static_cast<uint32_t>(node->sessions.size()));
      const auto bytes = [this] {
        uint64_t sum = 0;
        for (const auto& client : clients_) sum += client->bytes();
        return sum;
      };
      const uint64_t before = bytes();
      ASSERT_TRUE(node->channel->Send(peer, reply).ok());
      for (int i = 0; i < 400 && bytes() == before; ++i) {
        for (size_t c = 0; c < clients_.size(); ++c) Take(static_cast<int>(c));
        if (bytes() != before) break;
        std::vector<comm::Pollable> sockets;
        for (const auto& client : clients_)
          for (const auto& socket : client->sockets()) sockets.push_back(socket);
        comm::Poll(sockets, 5);
      }
      ASSERT_NE(bytes(), before);
      Settle();
    });
  }

  std::map<std::string, Node> nodes_;
  std::vector<std::unique_ptr<DraftClient>> clients_;
  std::map<uint64_t, std::unique_ptr<Run>> runs_;
  std::set<std::string> ready_;
  std::map<std::pair<double, uint64_t>, std::function<void()>> events_;
  double now_s_ = 1;
  uint64_t last_event_ = 0;
  int drafts_asked_ = 0;
};

}  // namespace coppice::worker
