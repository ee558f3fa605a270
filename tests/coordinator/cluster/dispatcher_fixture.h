// The dispatcher with a manual clock, and nodes that exist only as messages.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "coordinator/cluster/dispatcher.h"
#include "tests/coordinator/fake_exchange.h"
#include "tests/coordinator/fake_worker.h"

namespace coppice::coordinator {

// Has no memory for what contains kTooMuch.
class PoorTokenizer : public ByteTokenizer {
 public:
  static constexpr TokenId kTooMuch = '$';
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    if (id == kTooMuch) throw std::bad_alloc();
    return ByteTokenizer::TokenBytes(id, skip_special);
  }
};

class DispatcherTest : public ::testing::Test {
 protected:
  explicit DispatcherTest(const DispatcherOptions& options = Options()) : options_(options) {}
  static DispatcherOptions Options() {
    DispatcherOptions options;
    options.max_queue = 2;
    options.log_requests = false;
    return options;
  }
  void Join(const std::string& peer, const proto::Register& registration) {
    proto::NodeMessage message;
    *message.mutable_register_() = registration;
    dispatcher_.OnNodeMessage(peer, message);
  }
  void JoinReplica(const std::string& id, int64_t blocks = 1000) {
    proto::Register registration = WorkerRegistration(id);
    registration.set_kv_blocks_total(blocks);
    Join(id, registration);
  }
  void Beat(const std::string& peer, double still_s = 0) {
    proto::NodeMessage message;
    message.mutable_heartbeat()->mutable_status()->set_step(1);
    message.mutable_heartbeat()->mutable_status()->set_still_s(still_s);
    dispatcher_.OnNodeMessage(peer, message);
  }
  // How many times a peer was told that it has been given up.
  int GivenUps(const std::string& peer) const {
    return static_cast<int>(std::count_if(sent_.begin(), sent_.end(), [&](const auto& sent) {
      return sent.first == peer && sent.second.has_given_up();
    }));
  }
  std::shared_ptr<FakeExchange> Submit(GenerateRequest generate = {}, const Client& client = {}) {
    if (generate.prompts.empty()) generate.prompts = {Bytes("hi")};
    generate.max_tokens_given = true;
    if (generate.params.max_tokens == 256) generate.params.max_tokens = 16;
    auto exchange = std::make_shared<FakeExchange>();
    Request::Origin origin;
    origin.arrival_s = clock_.now_s;
    origin.client = client;
    requests_.push_back(
        std::make_shared<Request>(std::move(generate), origin, &tokenizer_, exchange));
    dispatcher_.Submit(requests_.back());
    return exchange;
  }
  // The sequences started on a peer, in order.
  std::vector<uint64_t> Started(const std::string& peer) const {
    std::vector<uint64_t> ids;
    for (const auto& [to, message] : sent_) {
      if (to == peer && message.has_start()) ids.push_back(message.start().sequence_id());
    }
    return ids;
  }
  std::vector<uint64_t> Cancelled(const std::string& peer) const {
    std::vector<uint64_t> ids;
    for (const auto& [to, message] : sent_) {
      if (to == peer && message.has_cancel()) ids.push_back(message.cancel().sequence_id());
    }
    return ids;
  }
  void Finish(const std::string& peer, uint64_t id) {
    proto::NodeMessage message;
    proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
    update->set_sequence_id(id);
    update->set_finished(true);
    *update->add_hypotheses() = MakeHypothesis(Bytes("ok", true), -1, true);
    *update->mutable_stats() = MakeStats();
    dispatcher_.OnNodeMessage(peer, message);
  }

  const DispatcherOptions options_;
  ManualClock clock_;
  const PoorTokenizer tokenizer_;
  Metrics metrics_{"demo"};
  NodeRegistry registry_{&clock_, RegistryOptions()};
  std::vector<std::pair<std::string, proto::CoordinatorMessage>> sent_;
  Dispatcher dispatcher_{options_, &clock_, &registry_, &metrics_,
                         [this](const std::string& peer, const proto::CoordinatorMessage& message) {
                           sent_.emplace_back(peer, message);
                         }};
  std::vector<std::shared_ptr<Request>> requests_;
};

}  // namespace coppice::coordinator
