// Bad input from many clients: the server refuses it with the field's name, serves others meanwhile
// and keeps no memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/coordinator/api/body_mutator.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/testing/decoding_message.h"
#include "tests/testing/memory_use.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

void Score(int top, proto::TokenScore* score) {
  score->set_log_prob(-1);
  for (int i = 0; i < top; ++i) {
    score->add_top_tokens('a' + i);
    score->add_top_log_probs(-1 - i);
  }
}

// "a" and what ends it: a stop string, else an id, else max_tokens; with the scores asked for.
std::vector<proto::SequenceUpdate> Short(const proto::StartSequence& start) {
  const auto& stops = start.decoding().stop_strings();
  const auto& ids = start.decoding().stop_ids();
  const bool stopped = std::find(stops.begin(), stops.end(), "a") != stops.end();
  std::vector<TokenId> tokens = Bytes("a");
  const bool ended = !stopped && !ids.empty() &&
                     test::ParameterNamed("max_tokens", start.decoding()).integer() > 1;
  if (ended) tokens.push_back(ids[0]);
  std::vector<proto::SequenceUpdate> updates(1);
  proto::SequenceUpdate& update = updates[0];
  update.set_finished(true);
  DecodingStats stats;  // of no rounds, which suits every max_tokens
  stats.method = "gumbel_coupling";
  *update.mutable_stats() = proto::StatsToMessage(stats);
  const int top = start.logprobs();
  for (int i = 1; start.score_prompt() && i < start.prompt_size(); ++i)
    Score(top, update.add_prompt_scores());
  if (start.score_only()) {
    *update.add_hypotheses() = proto::HypothesisToMessage(decoding::Hypothesis());
    return updates;
  }
  proto::Hypothesis* hypothesis = update.add_hypotheses();
  *hypothesis = MakeHypothesis(tokens, -1, stopped || ended);
  for (size_t i = 0; start.has_logprobs() && i < tokens.size(); ++i)
    Score(top, hypothesis->add_scores());
  return updates;
}
std::vector<proto::SequenceUpdate> Long(const proto::StartSequence&) {
  return SayText(std::string(200, 'x'));
}

class HostileClientsTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    options_.http.max_body_bytes = 4 << 20;
    options_.http.header_timeout_s = 30;
    options_.http.write_timeout_s = 1;
  }
};

TEST_F(HostileClientsTest, TenThousandMutatedBodiesAreServedOrRefusedByField) {
  StartCluster();
  const auto worker = Join("replica-0", Short, /*step_s=*/0);
  WaitReady();
  BodyMutator mutator(20260101);
  RawClient client(port());
  std::map<int, int> statuses;
  for (int i = 0; i < 10000; ++i) {
    const std::string body = mutator.Next();
    client.Send(Post(body));
    const RawAnswer answer = client.ReadAnswer();
    ++statuses[answer.status];
    ASSERT_TRUE(answer.status == 200 || answer.status == 400 || answer.status == 404)
        << i << ": " << answer.status << " " << answer.body << "\n"
        << body;
    if (answer.status == 200) continue;
    const json error = json::parse(answer.body)["error"];
    if (error["code"] == "invalid_json") continue;
    ASSERT_TRUE(error["param"].is_string()) << body << "\n" << answer.body;
    if (error["code"] == "context_length_exceeded") continue;  // in the words of other servers
    const std::string param = error["param"], message = error["message"];
    const std::string field = param.substr(param.rfind('.') + 1);
    EXPECT_NE(message.find(field.substr(0, field.find('['))), std::string::npos) << body << "\n"
                                                                                 << answer.body;
  }
  EXPECT_GT(statuses[200], 500);  // the test would mean little if all were refused
  EXPECT_GT(statuses[400], 3000);
}

TEST_F(HostileClientsTest, SlowHeadsAndCutBodiesHinderNobody) {
  StartCluster();
  const auto worker = Join("replica-0", Short, /*step_s=*/0);
  WaitReady();
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(std::make_unique<RawClient>(port()));
    slow.back()->Send(i % 2 == 0 ? "POST /v1/completions HTTP/1.1\r\nX-Slow: "
                                 : "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                                   "Content-Length: 1000\r\n\r\n{\"prompt\":");
  }
  for (int i = 0; i < 50; ++i) {
    test::Stopwatch watch;
    EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
    EXPECT_LT(watch.Seconds(), 5);
  }
  slow.clear();  // bodies are cut off
  EXPECT_TRUE(Eventually([this] { return Metric("coppice_http_connections") <= 2; }));
}

TEST_F(HostileClientsTest, DeepNestingAndBadTextAreRefusedWithoutMemory) {
  StartCluster();
  const std::string deep = "{\"prompt\":" + std::string(1 << 20, '[');
  const std::string bad = "{\"prompt\": \"" + std::string(1 << 20, '\xff') + "\"}";
  const auto send = [&](int times) {
    for (int i = 0; i < times; ++i) {
      for (const std::string& body : {deep, bad}) {
        const RawAnswer answer = Ask(Post(body));
        ASSERT_EQ(answer.status, 400);
        ASSERT_EQ(json::parse(answer.body)["error"]["code"], "invalid_json");
      }
    }
  };
  send(20);
  const size_t before = test::MemoryInUse();
  send(200);
  EXPECT_LT(test::MemoryInUse(), before + (16 << 20));
}

TEST_F(HostileClientsTest, ClientsThatDoNotReadAreDisconnectedAndHinderNobody) {
  StartCluster();
  const auto worker = Join("replica-0", Long, /*step_s=*/0);
  WaitReady();
  std::vector<std::unique_ptr<RawClient>> deaf;
  for (int i = 0; i < 20; ++i) {
    deaf.push_back(std::make_unique<RawClient>(port()));
    // Pipelined, so that the answers exceed what the sockets hold.
    for (int k = 0; k < 200; ++k)
      deaf.back()->Send(Post(R"({"prompt": "a", "stream": true, "return_token_ids": true})"));
  }
  const size_t before = test::MemoryInUse();
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
  EXPECT_TRUE(Eventually([this] { return Metric("coppice_http_connections") <= 2; }));
  EXPECT_LT(test::MemoryInUse(), before + (64 << 20));
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
}

// A deadline that passes while something has just arrived must not be missed.
TEST_F(HostileClientsTest, BodiesThatDripAreCutOffToo) {
  options_.http.body_timeout_s = 1;
  StartCluster();
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::make_unique<RawClient>(port()));
    slow.back()->Send(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n");
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < end) {
    for (const auto& client : slow) client->Send(" ");
  }
  EXPECT_TRUE(Eventually([this] { return Metric("coppice_http_connections") <= 2; }));
}

// A large answer may take longer than the time after which a client that does not read is
// disconnected.
TEST_F(HostileClientsTest, AClientThatReadsSlowlyGetsItsAnswer) {
  StartCluster();
  RawClient client(port(), /*receive_buffer=*/64 << 10);
  client.ReadSlowly(std::chrono::milliseconds(20));
  client.Send(AskForMuch());
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(json::parse(answer.body, nullptr, false).is_discarded()) << answer.body.size();
}

// Without a key, a client cannot make the server hold its body.
TEST_F(HostileClientsTest, BodiesOfClientsWithoutAKeyAreNotHeld) {
  options_.api_keys_file = ::testing::TempDir() + absl::StrCat("hostile_keys_", getpid());
  std::ofstream(options_.api_keys_file) << "0123456789abcdef\n";
  StartCluster();
  const std::string body((4 << 20) - 1, ' ');  // without its last byte
  const size_t before = test::MemoryInUse();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->Send(absl::StrCat(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size() + 1,
        "\r\n\r\n"));
    clients.back()->Send(body);
  }
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  EXPECT_LT(test::MemoryInUse(), before + (40 << 20));
  for (const auto& client : clients) ASSERT_EQ(client->ReadAnswer().status, 401);
  std::remove(options_.api_keys_file.c_str());
}

// Bodies that do not end hold a bounded part of the memory, and give it up for those that do.
TEST_F(HostileClientsTest, BodiesThatStopHalfwayStarveNobody) {
  options_.http.max_inflight_body_bytes = 8 << 20;
  StartCluster();
  const auto worker = Join("replica-0", Short, /*step_s=*/0);
  WaitReady();
  const std::string head = absl::StrCat(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ", 4 << 20, "\r\n\r\n");
  const std::string half(3 << 20, ' ');
  const size_t before = test::MemoryInUse();
  std::vector<std::unique_ptr<RawClient>> stopped;
  for (int i = 0; i < 20; ++i) {
    stopped.push_back(std::make_unique<RawClient>(port()));
    stopped.back()->Send(head + half);
  }
  const RawAnswer first = stopped[0]->ReadAnswer();
  EXPECT_EQ(first.status, 503);
  EXPECT_EQ(json::parse(first.body)["error"]["code"], "too_many_bodies");
  EXPECT_NE(first.head.find("Retry-After: 1"), std::string::npos) << first.head;
  EXPECT_LT(test::MemoryInUse(), before + (40 << 20));
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
  const std::string large = R"({"prompt": "a"})" + std::string(2 << 20, ' ');
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Ask(Post(large)).status, 200);
}

int OpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files)));
}

// As many as the process may open. The test's own descriptors count too.
TEST_F(HostileClientsTest, WithoutDescriptorsIdleConnectionsMakeRoom) {
  StartCluster();
  const int before = OpenFiles();
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 10; ++i) idle.push_back(std::make_unique<RawClient>(port()));
  ASSERT_TRUE(Eventually([&] { return OpenFiles() == before + 20; }));
  std::vector<int> others;  // so that no smaller number is free
  for (int i = 0; i < 50; ++i) others.push_back(open("/dev/null", O_RDONLY));
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit one_more = old;
  one_more.rlim_cur = others.back() + 2;  // the client's end of the next connection
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const RawAnswer answer = Ask(Get("/health"));
  setrlimit(RLIMIT_NOFILE, &old);
  for (const int file : others) close(file);
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(idle[0]->AtEnd());
}

// Once faulty, it cannot convert some ids to text, as if the program had a bug: the handler of the
// node's message throws.
class FaultyTokenizer : public ByteTokenizer {
 public:
  explicit FaultyTokenizer(const std::atomic<bool>* faulty) : faulty_(faulty) {}
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    if (*faulty_ && id == 'x') throw std::runtime_error("faulty");
    return ByteTokenizer::TokenBytes(id, skip_special);
  }

 private:
  const std::atomic<bool>* const faulty_;
};

class FaultyTest : public HostileClientsTest {
 protected:
  std::unique_ptr<tokenizer::Tokenizer> MakeTokenizer() override {
    return std::make_unique<FaultyTokenizer>(&faulty_);
  }
  std::atomic<bool> faulty_{false};
};

TEST_F(FaultyTest, AHandlerThatThrowsDoesNotEndTheServer) {
  StartCluster();
  const auto worker = Join(
      "replica-0",
      [](const proto::StartSequence& start) {
        return start.prompt(start.prompt_size() - 1) == 'a' ? Short(start) : SayText("x");
      },
      /*step_s=*/0);
  WaitReady();
  faulty_ = true;
  RawClient client(port());
  client.Send(Post(R"({"prompt": "b"})"));
  EXPECT_TRUE(Eventually([&] { return worker->started() == 1; }));
  // What a node has reported in the same message is lost too.
  EXPECT_TRUE(
      Eventually([this] { return Ask(Post(R"({"prompt": "a", "timeout": 1})")).status == 200; }));
  EXPECT_EQ(Ask(Get("/health")).status, 200);
}

}  // namespace
}  // namespace coppice::coordinator
