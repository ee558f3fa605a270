#include "loadgen/sse_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadgen/completion_stream.h"

namespace coppice::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const char kStream[] =
    ": keep-alive\n\ndata: {\"a\": 1}\n\nevent: x\ndata: two\ndata: lines\r\n\r\ndata:bare\rid: "
    "7\r\rdata: \xC3\xA9\n\n";
const std::vector<std::string> kEvents = {"{\"a\": 1}", "two\nlines", "bare", "\xC3\xA9"};

TEST(SseParser, SplitAtEveryByteGivesTheSameEvents) {
  const std::string stream = kStream;
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    SseParser parser;
    std::vector<std::string> events = parser.Feed(stream.substr(0, cut));
    for (const std::string& event : parser.Feed(stream.substr(cut))) events.push_back(event);
    EXPECT_EQ(events, kEvents) << cut;
  }
  SseParser parser;
  std::vector<std::string> events;
  for (const char c : stream) {
    for (const std::string& event : parser.Feed(std::string(1, c))) events.push_back(event);
  }
  EXPECT_EQ(events, kEvents);
}

// A CR, a LF, and both together end one line each: two of them end an event, one does not.
TEST(SseParser, EveryEndOfLineCountsOnce) {
  for (const std::string end : {"\n", "\r", "\r\n"}) {
    SseParser parser;
    const std::string stream = "data: two" + end + "data: lines" + end + end + "data: b" + end;
    EXPECT_THAT(parser.Feed(stream), ElementsAre("two\nlines"));
    EXPECT_THAT(parser.Feed(end), ElementsAre("b"));
  }
  // The two of one end may come apart.
  SseParser parser;
  EXPECT_THAT(parser.Feed("data: two\r"), IsEmpty());
  EXPECT_THAT(parser.Feed("\ndata: lines\r"), IsEmpty());
  EXPECT_THAT(parser.Feed("\n"), IsEmpty());
  EXPECT_THAT(parser.Feed("\r"), ElementsAre("two\nlines"));
}

TEST(SseParser, IncompleteEventIsNotGiven) {
  SseParser parser;
  EXPECT_THAT(parser.Feed("data: a\n"), IsEmpty());
  EXPECT_THAT(parser.Feed("\n"), ElementsAre("a"));
}

TEST(SseParser, OverlongEventEndsTheStream) {
  SseParser parser;
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 17; ++i) parser.Feed(piece);
  EXPECT_TRUE(parser.overflowed());
  EXPECT_THAT(parser.Feed("\n\ndata: a\n\n"), IsEmpty());
}

TEST(CompletionStream, ReadsTextEventsAndUsage) {
  RequestRecord record;
  CompletionStream stream(&record);
  stream.OnData(R"({"choices":[{"text":""}]})", 0.5);  // no text: not the first token
  stream.OnData(R"({"choices":[{"text":"a"}],"usage":null})", 1.0);
  stream.OnData(R"({"choices":[{"delta":{"content":"b"}}]})", 2.0);
  stream.OnData(R"({"choices":[{"delta":{"role":"assistant"}}]})", 2.5);
  EXPECT_EQ(record.output_tokens, 2);  // events, until usage comes
  stream.OnData(
      R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9,"energy_joules":1.5}})",
      3.0);
  stream.OnData("[DONE]", 3.0);
  stream.Finish();
  EXPECT_TRUE(record.ok);
  EXPECT_THAT(record.text_times_s, ElementsAre(1.0, 2.0));
  EXPECT_EQ(record.prompt_tokens, 5);
  EXPECT_EQ(record.output_tokens, 9);
  EXPECT_EQ(record.energy_joules, 1.5);
  EXPECT_FALSE(record.speculation.has_value());
}

TEST(CompletionStream, ErrorsAndMissingDoneFail) {
  RequestRecord failed, cut, garbled;
  CompletionStream failing(&failed);
  failing.OnData(R"({"error":{"code":"replica_lost","message":"gone"}})", 1);
  failing.Finish();
  EXPECT_EQ(failed.error, "replica_lost: gone");
  CompletionStream cutting(&cut);
  cutting.OnData(R"({"choices":[{"text":"a"}]})", 1);
  cutting.Finish();
  EXPECT_EQ(cut.error, "stream ended without [DONE]");
  CompletionStream garbling(&garbled);
  garbling.OnData("not json", 1);
  garbling.Finish();
  EXPECT_FALSE(garbled.ok);
}

}  // namespace
}  // namespace coppice::loadgen
