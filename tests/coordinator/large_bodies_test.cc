// Large bodies are read beside the event loop: what else is served meanwhile, and what happens when
// the client, an admin or the server ends first. Through a whole coordinator, whose tokenizer waits
// until it is told to go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/coordinator/gate.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Texts that begin with "slow" wait at the gate.
class SlowTokenizer : public ByteTokenizer {
 public:
  explicit SlowTokenizer(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  std::vector<TokenId> Encode(absl::string_view text, bool add_special_tokens) const override {
    if (absl::StartsWith(text, "slow")) gate_->Pass();
    return ByteTokenizer::Encode(text, add_special_tokens);
  }

 private:
  const std::shared_ptr<Gate> gate_;
};

// A body that is large for what it says.
std::string Large(const std::string& body) { return body + std::string(40000, ' '); }

std::string Call(const std::string& method, const std::string& path, const std::string& body,
                 const std::string& headers = "") {
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\n", headers,
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}

std::vector<proto::SequenceUpdate> Short(const proto::StartSequence&) { return SayText("yes"); }

class LargeBodiesTest : public ClusterTest {
 protected:
  std::unique_ptr<tokenizer::Tokenizer> MakeTokenizer() override {
    return std::make_unique<SlowTokenizer>(gate_);
  }
  void TearDown() override {
    gate_->Open();
    ClusterTest::TearDown();
  }
  void Start() {
    StartCluster();
    worker_ = Join("replica-0", Short);
    WaitReady();
  }
  // Sends a completion that waits at the gate. Returns when it is there.
  std::unique_ptr<RawClient> SendSlow(const std::string& headers = "") {
    const int before = gate_->arrived();
    auto client = std::make_unique<RawClient>(port());
    client->Send(Post(Large(R"({"prompt": "slow"})"), headers));
    EXPECT_TRUE(Eventually([&] { return gate_->arrived() > before; }));
    return client;
  }
  std::string CodeOf(const RawAnswer& answer) {
    return json::parse(answer.body, nullptr, false).value("/error/code"_json_pointer, "");
  }
  int Waiting() { return json::parse(Ask(Get("/cluster")).body)["requests"]["waiting"]; }

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::unique_ptr<FakeWorker> worker_;
};

TEST_F(LargeBodiesTest, WhileOneIsReadOthersAreAnswered) {
  Start();
  const auto slow = SendSlow();
  slow->Send(Get("/version"));  // on the same connection: must wait
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
  EXPECT_EQ(Waiting(), 1);
  EXPECT_EQ(worker_->started(), 1);
  gate_->Open();
  EXPECT_THAT(slow->ReadAnswer().body, HasSubstr("\"text\":\"yes\""));
  EXPECT_THAT(slow->ReadAnswer().body, HasSubstr("\"version\""));
  EXPECT_EQ(Waiting(), 0);
}

// A format takes long to read, however small it is.
TEST_F(LargeBodiesTest, SmallOnesThatMayHaveAFormatAreReadLikeLargeOnes) {
  Start();
  RawClient slow(port());
  slow.Send(Post(R"({"prompt": "slow", "response_format": {"type": "text"}})"));
  EXPECT_TRUE(Eventually([this] { return gate_->arrived() == 1; }));
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
  EXPECT_EQ(Waiting(), 1);
  gate_->Open();
  EXPECT_THAT(slow.ReadAnswer().body, HasSubstr("\"text\":\"yes\""));
}

TEST_F(LargeBodiesTest, TheyTakePlacesInTheQueue) {
  options_.dispatcher.max_queue = 2;
  Start();
  const auto first = SendSlow();
  RawClient second(port());
  second.Send(Call("POST", "/tokenize", Large(R"({"prompt": "slow"})")));
  EXPECT_TRUE(Eventually([this] { return Waiting() == 2; }));
  EXPECT_EQ(Metric("coppice_num_requests_waiting{model_name=\"demo\",replica=\"\"}"), 2);
  EXPECT_EQ(CodeOf(Ask(Post(Large(R"({"prompt": "a"})")))), "queue_full");
  EXPECT_EQ(CodeOf(Ask(Post(R"({"prompt": "a"})"))), "queue_full");
  gate_->Open();
  EXPECT_EQ(first->ReadAnswer().status, 200);
  EXPECT_EQ(second.ReadAnswer().status, 200);
  EXPECT_TRUE(Eventually([this] { return Waiting() == 0; }));
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
}

// One thread is for small ones, so a format waits for no text of megabytes.
TEST_F(LargeBodiesTest, ManyLargeOnesDoNotDelayASmallOne) {
  options_.http.max_body_bytes = 1 << 20;
  Start();
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<RawClient>(port()));
    slow.back()->Send(Post(R"({"prompt": "slow"})" + std::string(300000, ' ')));
  }
  EXPECT_TRUE(Eventually([this] { return Waiting() == 40 && gate_->arrived() > 0; }));
  EXPECT_EQ(Ask(Post(R"({"prompt": "a", "response_format": {"type": "text"}})")).status, 200);
  EXPECT_EQ(Ask(Post(Large(R"({"prompt": "a"})"))).status, 200);
  EXPECT_EQ(Waiting(), 40);
}

// What has not begun to be read gives its place back at once.
TEST_F(LargeBodiesTest, AGoneClientsUnreadBodyFreesItsPlace) {
  options_.http.max_body_bytes = 1 << 20;
  Start();
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<RawClient>(port()));
    slow.back()->Send(Post(R"({"prompt": "slow"})" + std::string(300000, ' ')));
  }
  EXPECT_TRUE(Eventually([this] { return Waiting() == 40 && gate_->arrived() > 0; }));
  slow.clear();
  EXPECT_TRUE(Eventually([this] { return Waiting() == gate_->arrived(); }));
  EXPECT_LT(gate_->arrived(), 4);
}

TEST_F(LargeBodiesTest, ADisconnectEndsTheRequestAtOnce) {
  Start();
  SendSlow()->Close();
  EXPECT_TRUE(Eventually([this] {
    return Metric("coppice_request_success_total{finished_reason=\"abort\",model_name=\"demo\"}") ==
           1;
  }));
  EXPECT_EQ(Waiting(), 1);  // its place is taken until its thread is free
  gate_->Open();
  EXPECT_TRUE(Eventually([this] { return Waiting() == 0; }));
  EXPECT_EQ(SendSlow()->ReadAnswer().status, 200);
  EXPECT_EQ(worker_->started(), 1);  // of this one alone; replicas get them in order
}

TEST_F(LargeBodiesTest, AnAdminCancelsOneThatIsRead) {
  Start();
  const auto slow = SendSlow("X-Request-Id: mine\r\n");
  EXPECT_EQ(json::parse(Ask(Call("DELETE", "/admin/requests/mine", "")).body)["cancelled"], 1);
  EXPECT_EQ(CodeOf(slow->ReadAnswer()), "cancelled");
  EXPECT_EQ(Ask(Call("DELETE", "/admin/requests/mine", "")).status, 404);
  gate_->Open();
  EXPECT_TRUE(Eventually([this] { return Waiting() == 0; }));
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
  EXPECT_EQ(worker_->started(), 1);
}

TEST_F(LargeBodiesTest, ADrainWaitsForThem) {
  Start();
  const auto slow = SendSlow();
  coordinator_->Drain(60, "test");
  EXPECT_TRUE(Eventually([this] { return CodeOf(Ask(Get("/ready"))) == "draining"; }));
  EXPECT_EQ(CodeOf(Ask(Post(Large(R"({"prompt": "slow"})")))), "draining");
  gate_->Open();
  EXPECT_EQ(slow->ReadAnswer().status, 200);
  thread_.join();
}

TEST_F(LargeBodiesTest, AServerThatEndsDoesNotWaitForThem) {
  Start();
  const auto slow = SendSlow();
  coordinator_->Drain(0, "test");
  EXPECT_EQ(CodeOf(slow->ReadAnswer()), "draining");
  thread_.join();  // the gate is still closed
  EXPECT_EQ(gate_->arrived(), 1);
  gate_->Open();
  coordinator_.reset();
}

TEST_F(LargeBodiesTest, ManyAtOnceGetTheirOwnAnswers) {
  chat_template_ = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
  Start();
  const std::vector<std::pair<std::string, std::string>> calls = {
      {Post(Large(R"({"prompt": "a", "user": "b"})")), "\"text\":\"yes\""},
      {Post(Large(R"({"prompt": "a", "stop": 1})")), "stop must be a string"},
      {Post(Large(R"({"prompt": "a")")), "invalid_json"},
      {Call("POST", "/v1/chat/completions",
            Large(R"({"messages": [{"role": "user", "content": "u"}]})")),
       "\"content\":\"yes\""},
      {Call("POST", "/tokenize", Large(R"({"messages": [{"role": "user", "content": "u"}]})")),
       "\"tokens\":[60,117,62]"},
      {Call("POST", "/detokenize", Large(R"({"tokens": [104, 105]})")), "\"prompt\":\"hi\""}};
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (const auto& [call, expected] : calls) {
      clients.push_back(std::make_unique<RawClient>(port()));
      clients.back()->Send(call);
    }
    for (size_t i = 0; i < calls.size(); ++i)
      EXPECT_THAT(clients[i]->ReadAnswer().body, HasSubstr(calls[i].second));
  }
}

}  // namespace
}  // namespace coppice::coordinator
