// Large answers are made beside the event loop: what else is served meanwhile, in which order the
// parts of a stream come, and what happens when the client or the server ends first. Through a
// whole coordinator, whose tokenizer waits until it is told to go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/coordinator/cluster_fixture.h"
#include "tests/coordinator/gate.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kTokens = 100, kTop = 20;
constexpr TokenId kSlow = 'Z';  // an alternative, so that only answers with scores show it

class SlowToShow : public ByteTokenizer {
 public:
  explicit SlowToShow(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    if (id == kSlow) gate_->Pass();
    return ByteTokenizer::TokenBytes(id, skip_special);
  }

 private:
  const std::shared_ptr<Gate> gate_;
};

void Score(TokenId first, proto::TokenScore* score) {
  score->set_log_prob(-1.5);
  for (int i = 0; i < kTop; ++i) {
    score->add_top_tokens(i == 0 ? first : 'a' + i);
    score->add_top_log_probs(-1 - i);
  }
}

// Many tokens at once, with the scores asked for. The first alternative of the last is the slow one
// if the prompt is "slow".
std::vector<proto::SequenceUpdate> Much(const proto::StartSequence& start) {
  std::vector<proto::SequenceUpdate> updates(1);
  proto::SequenceUpdate& update = updates[0];
  update.set_finished(true);
  DecodingStats stats;
  stats.method = "gumbel_coupling";
  *update.mutable_stats() = proto::StatsToMessage(stats);
  const std::vector<TokenId> tokens =
      start.has_logprobs() ? Bytes(std::string(kTokens - 1, 'x'), /*eos=*/true) : Bytes("y", true);
  proto::Hypothesis* hypothesis = update.add_hypotheses();
  *hypothesis = MakeHypothesis(tokens, -1, true);
  const bool slow = start.prompt(start.prompt_size() - 1) == 'w';
  for (size_t i = 0; start.has_logprobs() && i < tokens.size(); ++i)
    Score(slow && i + 1 == tokens.size() ? kSlow : 'A', hypothesis->add_scores());
  return updates;
}

class LargeAnswersTest : public ClusterTest {
 protected:
  std::unique_ptr<tokenizer::Tokenizer> MakeTokenizer() override {
    return std::make_unique<SlowToShow>(gate_);
  }
  void TearDown() override {
    gate_->Open();
    ClusterTest::TearDown();
  }
  void Start() {
    gate_->Open();  // a server that starts looks at every token
    StartCluster();
    worker_ = Join("replica-0", Much);
    WaitReady();
    gate_->Close();
  }
  // Asks for a large answer. Returns when it is being made.
  std::unique_ptr<RawClient> AskSlow(const std::string& fields = "") {
    const int before = gate_->arrived();
    auto client = std::make_unique<RawClient>(port());
    client->Send(Post(R"({"prompt": "slow", "logprobs": 20, "max_tokens": 200)" + fields + "}"));
    EXPECT_TRUE(Eventually([&] { return gate_->arrived() > before; }));
    return client;
  }

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::unique_ptr<FakeWorker> worker_;
};

TEST_F(LargeAnswersTest, WhileOneIsMadeOthersAreAnswered) {
  Start();
  const auto slow = AskSlow();
  slow->Send(Get("/version"));  // on the same connection: must wait
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  EXPECT_THAT(Ask(Post(R"({"prompt": "a"})")).body, HasSubstr("\"text\":\"y\""));
  EXPECT_EQ(json::parse(Ask(Get("/cluster")).body)["requests"]["running"], 0);
  gate_->Open();
  const RawAnswer answer = slow->ReadAnswer();
  ASSERT_EQ(answer.status, 200);
  const json scores = json::parse(answer.body)["choices"][0]["logprobs"];
  ASSERT_EQ(scores["tokens"].size(), kTokens);
  EXPECT_EQ(scores["tokens"][0], "x");
  EXPECT_EQ(scores["top_logprobs"][0]["A"], -1);
  EXPECT_EQ(scores["top_logprobs"][kTokens - 1]["Z"], -1);
  EXPECT_EQ(scores["top_logprobs"][0].size(), kTop + 1);  // and the token itself
  EXPECT_EQ(scores["text_offset"][kTokens - 1], kTokens - 1);
  EXPECT_THAT(slow->ReadAnswer().body, HasSubstr("\"version\""));
}

TEST_F(LargeAnswersTest, TheRestOfAStreamComesAfterTheLargePart) {
  Start();
  const auto slow = AskSlow(R"(, "stream": true, "stream_options": {"include_usage": true})");
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  gate_->Open();
  const std::string body = slow->ReadAnswer().body;
  const size_t large = body.find("top_logprobs"), usage = body.find("\"completion_tokens\":100"),
               done = body.find("[DONE]");
  ASSERT_NE(large, std::string::npos);
  EXPECT_LT(large, usage);
  EXPECT_LT(usage, done);
}

TEST_F(LargeAnswersTest, ADrainWaitsForThem) {
  Start();
  const auto slow = AskSlow();
  coordinator_->Drain(60, "test");
  EXPECT_TRUE(Eventually([this] { return Ask(Get("/ready")).status == 503; }));
  gate_->Open();
  EXPECT_EQ(slow->ReadAnswer().status, 200);
  thread_.join();
}

TEST_F(LargeAnswersTest, AGoneClientIsNoTrouble) {
  Start();
  AskSlow()->Close();
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  gate_->Open();
  EXPECT_EQ(AskSlow()->ReadAnswer().status, 200);
}

}  // namespace
}  // namespace coppice::coordinator
