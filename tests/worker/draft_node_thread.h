// For tests: a draft node with a tiny model, on a thread of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "comm/channel.h"
#include "draft_node/draft_service.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_runner.h"

namespace coppice::worker {

// Runs a draft node on a thread until this object is destroyed.
class DraftNodeThread {
 public:
  static constexpr int kThreads = 3;

  DraftNodeThread(const test::TinyLlama& model, const std::string& endpoint,
                  const draft_node::DraftServiceOptions& options = {})
      : runner_(test::LoadTinyRunner(model, dir_.path(), single_.get(), kThreads)),
        leaders_(*comm::ServerChannel::Bind(endpoint)),
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
  proto::DraftNodes Nodes() const {
    proto::DraftNodes nodes;
    proto::DraftNode* node = nodes.add_nodes();
    node->set_node_id("draft");
    node->set_endpoint(leaders_->endpoint());
    return nodes;
  }

 private:
  test::TempDir dir_;
  std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  SteadyClock clock_;
  std::unique_ptr<model::ModelRunner> runner_;
  std::unique_ptr<comm::ServerChannel> leaders_;
  draft_node::DraftService service_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace coppice::worker
