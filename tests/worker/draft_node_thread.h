// For tests: a draft node with a small model, on a thread of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "comm/channel.h"
#include "draft_node/draft_service.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_runner.h"

namespace coppice::worker {

// The leaders' channel, which counts the failures that are sent.
class CountingServer : public comm::ServerChannel {
 public:
  explicit CountingServer(std::unique_ptr<comm::ServerChannel> channel)
      : channel_(std::move(channel)) {}
  int failures() const { return failures_; }

  const std::string& endpoint() const override { return channel_->endpoint(); }
  absl::Status Send(const std::string& peer,
                    const google::protobuf::MessageLite& message) override {
    proto::DraftReply reply;
    EXPECT_TRUE(reply.ParseFromString(message.SerializeAsString()));
    failures_ += !reply.error().empty();
    return channel_->Send(peer, message);
  }
  std::optional<std::string> Receive(google::protobuf::MessageLite* message) override {
    return channel_->Receive(message);
  }
  std::vector<std::string> TakeGone() override { return channel_->TakeGone(); }
  comm::Pollable socket() override { return channel_->socket(); }
  const comm::ChannelCounters& counters() const override { return channel_->counters(); }

 private:
  const std::unique_ptr<comm::ServerChannel> channel_;
  std::atomic<int> failures_{0};
};

// Runs a draft node on a thread until this object is destroyed.
class DraftNodeThread {
 public:
  static constexpr int kThreads = 3;
  using Load = std::function<std::unique_ptr<model::ModelRunner>(comm::Communicator*)>;

  DraftNodeThread(const test::TinyLlama& model, const std::string& endpoint,
                  const draft_node::DraftServiceOptions& options = {})
      : DraftNodeThread(
            [&](comm::Communicator* single) {
              return test::LoadTinyRunner(model, dir_.path(), single, kThreads);
            },
            endpoint, options) {}
  // states: the fingerprint of the states that the draft takes; 0: none.
  DraftNodeThread(const Load& load, const std::string& endpoint,
                  const draft_node::DraftServiceOptions& options = {}, uint64_t states = 0)
      : states_(states),
        runner_(load(single_.get())),
        leaders_(std::make_unique<CountingServer>(*comm::ServerChannel::Bind(endpoint))),
        service_(options, runner_.get(), leaders_.get(), nullptr, &clock_) {
    thread_ = std::thread([this] {
      while (!stopping_) EXPECT_TRUE(service_.RunOnce(5).ok());
    });
  }
  ~DraftNodeThread() {
    stopping_ = true;
    thread_.join();
    EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok()) << runner_->blocks()->CheckIntegrity();
  }
  proto::DraftNode Entry(const std::string& id) const {
    proto::DraftNode node;
    node.set_node_id(id);
    node.set_endpoint(leaders_->endpoint());
    node.set_states(states_);
    return node;
  }
  proto::DraftNodes Nodes() const {
    proto::DraftNodes nodes;
    *nodes.add_nodes() = Entry("draft");
    return nodes;
  }
  int failures() const { return leaders_->failures(); }

 private:
  const uint64_t states_;
  test::TempDir dir_;
  std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  SteadyClock clock_;
  std::unique_ptr<model::ModelRunner> runner_;
  std::unique_ptr<CountingServer> leaders_;
  draft_node::DraftService service_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace coppice::worker
