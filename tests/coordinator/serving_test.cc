// Requests go through a whole coordinator to a fake replica on the control channel: answers,
// streams, disconnects, deadlines, fail-over, drain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "decoding/parameter.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/testing/decoding_message.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// The data of the events, in order.
std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return events;
}

// The texts, finish reasons and ids of the choices of a stream, joined from its events.
struct Assembled {
  std::map<int, std::string> text, finish;
  std::map<int, std::vector<int>> ids;
};
Assembled Assemble(const std::vector<std::string>& events) {
  Assembled all;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const json parsed = json::parse(event);
    for (const json& choice : parsed["choices"]) {
      const int index = choice["index"];
      all.text[index] += choice["text"].get<std::string>();
      if (choice["finish_reason"].is_string()) all.finish[index] = choice["finish_reason"];
      if (!choice.contains("token_ids")) continue;
      for (const json& id : choice["token_ids"]) all.ids[index].push_back(id);
    }
  }
  return all;
}

// Multinomial: the text is the parity of the seed. Beams: "be" becomes stable, then up to two
// hypotheses end.
std::vector<proto::SequenceUpdate> Script(const proto::StartSequence& start) {
  if (start.decoding().kind() == "multinomial") {
    return SayUpToStop(test::ParameterNamed("seed", start.decoding()).seed() % 2 == 0
                           ? "even \xe2\x82\xac words"
                           : "odd words",
                       start);
  }
  std::vector<proto::SequenceUpdate> updates(3);
  updates[0].add_stable_tokens('b');
  updates[1].add_stable_tokens('e');
  updates[2].set_finished(true);
  *updates[2].add_hypotheses() = MakeHypothesis(Bytes("best", true), -1, true);
  if (test::ParameterNamed("num_hypotheses", start.decoding()).integer() > 1)
    *updates[2].add_hypotheses() = MakeHypothesis(Bytes("beast"), -2, false);
  *updates[2].mutable_stats() = MakeStats();
  return updates;
}

// The first two updates of Script, and no more.
std::vector<proto::SequenceUpdate> Beginning(const proto::StartSequence& start) {
  std::vector<proto::SequenceUpdate> updates = Script(start);
  updates.resize(2);
  return updates;
}

std::vector<proto::SequenceUpdate> Endless(const proto::StartSequence&) {
  std::vector<proto::SequenceUpdate> updates = SayText(std::string(400, 'x'));
  return updates;
}

class ServingTest : public ClusterTest {
 protected:
  json Complete(const std::string& body) {
    const RawAnswer answer = Ask(Post(body));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body, nullptr, false);
  }
};

TEST_F(ServingTest, AnswersACompletion) {
  StartCluster();
  const auto worker = Join("replica-0", Script);
  WaitReady();
  const json answer = Complete(R"({"prompt": "hi", "seed": 2, "return_token_ids": true})");
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "demo");
  EXPECT_THAT(answer["system_fingerprint"].get<std::string>(),
              ::testing::MatchesRegex("cop-[0-9a-f]{12}"));
  const json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "even \xe2\x82\xac words");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_EQ(choice["seed"], 2);
  EXPECT_EQ(choice["joint_logprob"], -1.5);
  EXPECT_EQ(choice["prompt_token_ids"], json({257, 'h', 'i'}));
  EXPECT_EQ(choice["token_ids"].size(), 15);
  const json& usage = answer["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 3);
  EXPECT_EQ(usage["completion_tokens"], 15);
  EXPECT_EQ(usage["total_tokens"], 18);
  EXPECT_EQ(usage["speculation"]["method"], "gumbel_coupling");
  EXPECT_EQ(usage["speculation"]["block_efficiency"], 2.0);
  EXPECT_TRUE(usage["speculation"]["overlap"].is_null());
  EXPECT_EQ(Metric("coppice_generation_tokens_total{model_name=\"demo\"}"), 15);
  EXPECT_EQ(Metric("coppice_request_success_total{finished_reason=\"stop\",model_name=\"demo\"}"),
            1);
}

TEST_F(ServingTest, PromptsAndSamplesAreNumbered) {
  StartCluster();
  const auto worker = Join("replica-0", Script);
  WaitReady();
  const json answer = Complete(R"({"prompt": ["a", "b", "A"], "n": 2, "seed": 4})");
  ASSERT_EQ(answer["choices"].size(), 6);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["seed"], 4 + i % 2);
    EXPECT_THAT(answer["choices"][i]["text"].get<std::string>(),
                HasSubstr(i % 2 == 0 ? "even" : "odd"));
  }
}

TEST_F(ServingTest, StreamsConcatenateToThePlainAnswer) {
  StartCluster();
  const auto worker = Join("replica-0", Script);
  WaitReady();
  for (const std::string fields : {R"("n": 2, "seed": 2)", R"("use_beam_search": true, "n": 2)",
                                   R"("seed": 2, "stop": "wor")"}) {
    const std::string body = absl::StrCat(R"({"prompt": "hi", "return_token_ids": true, )", fields);
    const json plain = Complete(body + "}");
    const RawAnswer answer = Ask(Post(body + R"(, "stream": true})"));
    EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/event-stream; charset=utf-8"));
    EXPECT_THAT(answer.head, HasSubstr("X-Accel-Buffering: no"));
    const std::vector<std::string> events = Events(answer.body);
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back(), "[DONE]");
    EXPECT_FALSE(json::parse(events[0])["choices"][0]["text"].get<std::string>().empty());
    const Assembled all = Assemble(events);
    for (const json& choice : plain["choices"]) {
      const int index = choice["index"];
      EXPECT_EQ(all.text.at(index), choice["text"]) << fields;
      EXPECT_EQ(all.finish.at(index), choice["finish_reason"]) << fields;
      EXPECT_EQ(json(all.ids.at(index)), choice["token_ids"]) << fields;
    }
    EXPECT_EQ(all.text.size(), plain["choices"].size());
  }
}

TEST_F(ServingTest, BeamsStreamTheStablePrefixAndEndWithAllChoices) {
  StartCluster();
  const auto worker = Join("replica-0", Script);
  WaitReady();
  const RawAnswer answer = Ask(Post(
      R"({"prompt": "hi", "use_beam_search": true, "n": 2, "stream": true, "stream_options": {"include_usage": true}})"));
  const std::vector<std::string> events = Events(answer.body);
  ASSERT_EQ(events.size(), 5) << answer.body;
  EXPECT_EQ(json::parse(events[0])["choices"][0]["text"], "b");
  EXPECT_TRUE(json::parse(events[0])["usage"].is_null());
  EXPECT_TRUE(json::parse(events[0]).contains("usage"));
  const json last = json::parse(events[2])["choices"];
  ASSERT_EQ(last.size(), 2);
  EXPECT_EQ(last[0]["text"], "st");
  EXPECT_EQ(last[1]["text"], "beast");
  EXPECT_EQ(last[1]["finish_reason"], "length");
  EXPECT_GT(last[0]["score"], last[1]["score"]);
  const json usage = json::parse(events[3]);
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 10);
}

std::vector<proto::SequenceUpdate> Repeated(const proto::StartSequence& start) {
  return SayUpToStop(std::string(400, 'x'), start);
}

TEST_F(ServingTest, TheTextIsCutAtTheStopStringThatEndedIt) {
  StartCluster();
  const auto worker = Join("replica-0", Repeated);
  WaitReady();
  const json answer = Complete(R"({"prompt": "hi", "stop": "xxxx", "max_tokens": 400})");
  EXPECT_EQ(answer["choices"][0]["text"], "");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["stop_reason"], "xxxx");
  EXPECT_EQ(answer["choices"][0]["joint_logprob"], -1.5);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4);
}

TEST_F(ServingTest, AReplicaThatMissesAStopStringIsNotBelieved) {
  StartCluster();
  const auto worker = Join("replica-0", Endless, 0.02);
  WaitReady();
  const RawAnswer answer =
      Ask(Post(R"({"prompt": "hi", "stop": "xxxx", "max_tokens": 400, "stream": true})"));
  EXPECT_THAT(answer.body, HasSubstr("tokenizer"));
  EXPECT_TRUE(Eventually([&] { return worker->cancelled() == 1; }));
}

TEST_F(ServingTest, DisconnectCancels) {
  StartCluster();
  const auto worker = Join("replica-0", Endless, 0.01);
  WaitReady();
  int wanted = 0;
  for (const bool stream : {false, true}) {
    for (const bool half : {false, true}) {
      RawClient client(port());
      client.Send(Post(absl::StrCat(R"({"prompt": "hi", "max_tokens": 400, "stream": )",
                                    stream ? "true" : "false", "}")));
      ++wanted;
      ASSERT_TRUE(Eventually([&] { return worker->started() == wanted; }));
      EXPECT_TRUE(!stream || !client.ReadUntil("data: ").empty());
      half ? client.HalfClose() : client.Close();
      EXPECT_TRUE(Eventually([&] { return worker->cancelled() == wanted; })) << stream << half;
    }
  }
  EXPECT_EQ(Metric("coppice_request_success_total{finished_reason=\"abort\",model_name=\"demo\"}"),
            4);
  EXPECT_EQ(Metric("coppice_cancelled_requests_total{model_name=\"demo\"}"), 4);
}

TEST_F(ServingTest, DeadlinePassesBeforeAndAfterTheFirstEvent) {
  StartCluster();
  const auto worker = Join("replica-0", Endless, 0.02);
  WaitReady();
  const RawAnswer plain = Ask(Post(R"({"prompt": "hi", "max_tokens": 400, "timeout": 0.1})"));
  EXPECT_EQ(plain.status, 504);
  EXPECT_THAT(plain.head, HasSubstr("x-should-retry: false"));
  EXPECT_THAT(plain.body, HasSubstr("deadline_exceeded"));
  const RawAnswer header = Ask(
      Post(R"({"prompt": "hi", "max_tokens": 400, "timeout": 60})", "X-Request-Timeout: 0.1\r\n"));
  EXPECT_EQ(header.status, 504);
  const RawAnswer stream =
      Ask(Post(R"({"prompt": "hi", "max_tokens": 400, "timeout": 3, "stream": true})"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_THAT(stream.body, HasSubstr("deadline_exceeded"));
  EXPECT_THAT(stream.body, Not(HasSubstr("[DONE]")));
  EXPECT_TRUE(Eventually([&] { return worker->cancelled() == 3; }));
}

TEST_F(ServingTest, WaitsForAReplicaUntilTheDeadline) {
  options_.http.keep_alive_interval_s = 0.05;
  StartCluster();
  const RawAnswer none = Ask(Post(R"({"prompt": "hi", "timeout": 0.1})"));
  EXPECT_EQ(none.status, 503);
  EXPECT_THAT(none.body, HasSubstr("no_replica"));
  RawClient early(port());
  early.Send(Post(R"({"prompt": "hi", "seed": 1, "stream": true})"));
  EXPECT_FALSE(early.ReadUntil(": keep-alive\n\n").empty());
  const auto worker = Join("replica-0", Script);
  const RawAnswer answer = early.ReadAnswer();
  EXPECT_EQ(Assemble(Events(answer.body)).text.at(0), "odd words");
}

TEST_F(ServingTest, AFullQueueRefuses) {
  options_.dispatcher.max_queue = 2;
  StartCluster();
  RawClient first(port()), second(port());
  for (RawClient* client : {&first, &second}) client->Send(Post(R"({"prompt": "hi", "seed": 1})"));
  ASSERT_TRUE(Eventually([&] {
    return Metric("coppice_num_requests_waiting{model_name=\"demo\",replica=\"\"}") == 2;
  }));
  const RawAnswer refused = Ask(Post(R"({"prompt": "hi", "stream": true})"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
  EXPECT_THAT(refused.body, HasSubstr("queue_full"));
  const auto worker = Join("replica-0", Script);
  EXPECT_EQ(first.ReadAnswer().status, 200);
  EXPECT_EQ(second.ReadAnswer().status, 200);
}

TEST_F(ServingTest, ALostReplicaIsReplayedAndTheStreamGoesOn) {
  StartCluster();
  auto first = Join("replica-0", Beginning);
  WaitReady();
  RawClient client(port());
  client.Send(Post(R"({"prompt": "hi", "seed": 2, "stream": true})"));
  ASSERT_FALSE(client.ReadUntil("\"text\":\"v\"").empty());
  const auto second = Join("replica-1", Script);
  first->Stop();
  const RawAnswer answer = client.ReadAnswer();
  const std::vector<std::string> events = Events(answer.body);
  EXPECT_EQ(Assemble(events).text.at(0), "even \xe2\x82\xac words");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(Metric("coppice_failovers_total{model_name=\"demo\"}"), 1);
  const json cluster = json::parse(Ask(Get("/cluster")).body);
  EXPECT_EQ(cluster["replicas"][0]["state"], "lost");
  EXPECT_EQ(cluster["replicas"][1]["state"], "ready");
}

TEST_F(ServingTest, ALostReplicaEndsAShownStreamThatCannotBeReproduced) {
  StartCluster();
  auto worker = Join("replica-0", Beginning);
  WaitReady();
  RawClient client(port());
  client.Send(Post(
      R"({"prompt": "hi", "decoding": "beam_sampling", "speculative": {"method": "dsbd"}, "stream": true})"));
  ASSERT_FALSE(client.ReadUntil("\"text\":\"b\"").empty());
  const auto other = Join("replica-1", Script);  // does not begin it again
  worker->Stop();
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_THAT(answer.body, HasSubstr("replica_lost"));
  EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
}

TEST_F(ServingTest, DrainRefusesNewRequestsAndFinishesRunningOnes) {
  options_.registry.heartbeat_interval_s = 20;  // a replica that waits in its script does not beat
  StartCluster();
  std::atomic<bool> go = false;
  const auto worker = Join("replica-0", [&](const proto::StartSequence& start) {
    Eventually([&] { return go.load(); });
    return Script(start);
  });
  WaitReady();
  RawClient running(port());
  running.Send(Post(R"({"prompt": "hi", "seed": 1})"));
  ASSERT_TRUE(Eventually([&] { return worker->started() == 1; }));
  coordinator_->Drain(10, "test");
  ASSERT_TRUE(Eventually([&] { return Ask(Get("/ready")).status == 503; }));
  EXPECT_THAT(Ask(Post(R"({"prompt": "hi"})")).body, HasSubstr("draining"));
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  go = true;
  EXPECT_EQ(running.ReadAnswer().status, 200);
  thread_.join();
  EXPECT_TRUE(worker->told_to_stop());
}

// The answer is ready, but its client has not read it yet.
TEST_F(ServingTest, DrainWritesAnswersToTheirEnd) {
  options_.http.max_body_bytes = 2 << 20;
  StartCluster();
  RawClient client(port(), /*receive_buffer=*/64 << 10);
  client.Send(AskForMuch());
  ASSERT_FALSE(client.ReadUntil("\r\n\r\n").empty());
  coordinator_->Drain(30, "test");
  client.ReadSlowly(std::chrono::milliseconds(20));
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(json::parse(answer.body, nullptr, false).is_discarded()) << answer.body.size();
  thread_.join();
}

TEST_F(ServingTest, ModelsListWhatIsServed) {
  StartCluster();
  const auto worker = Join("replica-0", Script);
  WaitReady();
  const json list = json::parse(Ask(Get("/v1/models")).body);
  ASSERT_EQ(list["data"].size(), 1);
  EXPECT_EQ(list["data"][0]["id"], "demo");
  EXPECT_EQ(list["data"][0]["max_model_len"], 512);
  EXPECT_EQ(json::parse(Ask(Get("/v1/models/demo")).body), list["data"][0]);
  EXPECT_EQ(Ask(Get("/v1/models/other")).status, 404);
  // Every pair that is listed is served or refused as a combination.
  const json& can = list["data"][0]["capabilities"];
  ASSERT_EQ(can["parameters"].size(), decoding::Parameters().size());
  EXPECT_EQ(can["parameters"][1]["name"], "beam_width");
  EXPECT_EQ(can["parameters"][1]["maximum"], can["max_beam_width"]);
  for (const std::string decoding : can["decodings"]) {
    for (const std::string method : can["speculative_methods"]) {
      const RawAnswer answer =
          Ask(Post(absl::StrCat(R"({"prompt": "hi", "seed": 1, "decoding": ")", decoding,
                                R"(", "speculative": {"method": ")", method, "\"}}")));
      EXPECT_TRUE(answer.status == 200 ||
                  answer.body.find("unsupported_combination") != std::string::npos)
          << decoding << " " << method << " " << answer.body;
      EXPECT_TRUE(method != "auto" || answer.status == 200) << decoding;
    }
  }
  // `methods` describes every name except auto.
  ASSERT_EQ(can["methods"].size() + 1, can["speculative_methods"].size());
  for (size_t i = 0; i < can["methods"].size(); ++i) {
    const json& method = can["methods"][i];
    EXPECT_EQ(method["name"], can["speculative_methods"][i + 1]);
    EXPECT_FALSE(method["decodings"].empty()) << method;
    EXPECT_THAT(method["sampling_scopes"].dump(), HasSubstr(R"("row","row_raw")"));
    for (const json& mode : method["sampling_scopes"]) {
      EXPECT_THAT(can["sampling_scopes"].dump(), HasSubstr(mode.dump())) << method;
    }
    EXPECT_TRUE(method["lossless"].is_boolean() && method["reproducible"].is_boolean()) << method;
    for (const char* text : {"distribution", "draft_form", "sends", "source"}) {
      EXPECT_FALSE(method[text].get<std::string>().empty()) << method;
    }
    EXPECT_TRUE(method["options"].is_array()) << method;
  }
}

}  // namespace
}  // namespace coppice::coordinator
