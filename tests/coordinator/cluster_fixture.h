// A whole coordinator in this process, with its own thread, free ports and a byte tokenizer.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "coordinator/coordinator.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/fake_worker.h"
#include "tests/coordinator/raw_client.h"
#include "tests/testing/stopwatch.h"

namespace coppice::coordinator {

using test::Eventually;

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.model_names = {"demo"};
    options_.http.listen = "127.0.0.1:0";
    options_.http.max_body_bytes = 65536;
    options_.registry.heartbeat_interval_s = 0.4;
    options_.dispatcher.log_requests = false;
  }
  void TearDown() override { StopCluster(); }

  void StartCluster() {
    std::unique_ptr<tokenizer::Tokenizer> tokenizer = MakeTokenizer();
    auto chat = std::make_unique<tokenizer::ChatPrompt>(
        *tokenizer::ChatTemplate::Parse(chat_template_), "<s>", "</s>", tokenizer.get());
    if (chat_template_.empty()) chat = nullptr;
    auto started = Coordinator::Start(options_, std::move(tokenizer), std::move(chat));
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    coordinator_ = *std::move(started);
    auto channel = comm::ServerChannel::Bind("tcp://127.0.0.1:*");
    ASSERT_TRUE(channel.ok()) << channel.status().ToString();
    control_ = (*channel)->endpoint();
    coordinator_->ServeNodes(*std::move(channel));
    thread_ = std::thread([this] { coordinator_->Run(); });
  }
  virtual std::unique_ptr<tokenizer::Tokenizer> MakeTokenizer() {
    return std::make_unique<ByteTokenizer>();
  }
  void StopCluster() {
    if (!thread_.joinable()) return;
    coordinator_->Drain(0, "test");
    thread_.join();
  }
  std::unique_ptr<FakeWorker> Join(const std::string& id, FakeWorker::Script script,
                                   double step_s = 0.002) {
    return std::make_unique<FakeWorker>(control_, id, std::move(script), step_s);
  }
  void WaitReady() {
    ASSERT_TRUE(Eventually([this] { return Ask(Get("/ready")).status == 200; }));
  }
  // `/cluster` without a key must be allowed.
  void WaitReplicas(int replicas) {
    ASSERT_TRUE(Eventually([&] {
      int ready = 0;
      const nlohmann::json state = nlohmann::json::parse(Ask(Get("/cluster")).body);
      for (const auto& replica : state["replicas"]) ready += replica["state"] == "ready";
      return ready == replicas;
    }));
  }
  int port() const { return coordinator_->http_port(); }
  RawAnswer Ask(const std::string& request) {
    RawClient client(port());
    client.Send(request);
    return client.ReadAnswer();
  }
  // The value of the sample `series` in /metrics, or -1 if there is none.
  double Metric(const std::string& series) {
    const std::string text = "\n" + Ask(Get("/metrics")).body;
    const size_t at = text.find("\n" + series + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
  }

  CoordinatorOptions options_;
  std::string chat_template_;  // "" = the model has none
  std::unique_ptr<Coordinator> coordinator_;
  std::string control_;
  std::thread thread_;
};

}  // namespace coppice::coordinator
