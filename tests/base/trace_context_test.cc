#include "base/trace_context.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace coppice {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kGood[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

uint64_t Counted() {
  static uint64_t count = 0;
  return ++count;
}

TEST(TraceContext, AValidParentIsRead) {
  const auto trace = ParseTraceParent(kGood);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->trace_id, kTrace);
  EXPECT_EQ(trace->parent_id, "00f067aa0ba902b7");
  EXPECT_EQ(trace->flags, "01");
  EXPECT_EQ(TraceParentText(*trace), kGood);
}

TEST(TraceContext, MalformedParentsAreNone) {
  const std::string good = kGood;
  for (const std::string& text : std::vector<std::string>{
           "", "00", good.substr(0, 54), good + "0", good + "-00", "ff" + good.substr(2),
           "0g" + good.substr(2), "00_" + good.substr(3),
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
           "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x", " " + good}) {
    EXPECT_FALSE(ParseTraceParent(text).has_value()) << text;
  }
}

// A later version may have more fields after those of version 00.
TEST(TraceContext, OfALaterVersionTheKnownFieldsAreRead) {
  const std::string later = "01" + std::string(kGood).substr(2);
  ASSERT_TRUE(ParseTraceParent(later).has_value());
  ASSERT_TRUE(ParseTraceParent(later + "-what-is-new").has_value());
  EXPECT_EQ(TraceParentText(*ParseTraceParent(later + "-x")), kGood);
  EXPECT_FALSE(ParseTraceParent(later + ".x").has_value());
}

TEST(TraceContext, EntriesOfTheStateAreJoined) {
  EXPECT_EQ(ParseTraceState({"a=1, b=x y ,, c@sys=~", "9t@s=2"}), "a=1,b=x y,c@sys=~,9t@s=2");
  EXPECT_EQ(ParseTraceState({}), "");
  for (const std::string& text : std::vector<std::string>{
           "a", "=1", "a=", "A=1", "1a=1", "a=1,a=2", "a=b=c", "a\x7f=1", "a=\x01", "a@=1", "a@1=1",
           absl::StrCat(std::string(257, 'k'), "=1"), absl::StrCat("a=", std::string(257, 'v'))}) {
    EXPECT_EQ(ParseTraceState({text}), "") << text;
  }
  std::string many;
  for (int i = 0; i < 32; ++i) absl::StrAppend(&many, "k", i, "=1,");
  EXPECT_NE(ParseTraceState({many}), "");
  EXPECT_EQ(ParseTraceState({many + "k32=1"}), "");
}

TEST(TraceContext, ASpanIsPartOfItsClientsTrace) {
  const TraceContext span = StartSpan({kGood}, {"a=1"}, Counted);
  EXPECT_EQ(span.trace_id, kTrace);
  EXPECT_EQ(span.flags, "01");
  EXPECT_EQ(span.state, "a=1");
  EXPECT_NE(span.parent_id, "00f067aa0ba902b7");
  EXPECT_TRUE(ParseTraceParent(TraceParentText(span)).has_value());
  EXPECT_EQ(StartSpan({kGood}, {"a=1,A=2"}, Counted).state, "");
}

TEST(TraceContext, WithoutAValidParentATraceBegins) {
  for (const std::vector<std::string>& parents :
       std::vector<std::vector<std::string>>{{}, {"rubbish"}, {kGood, kGood}}) {
    const TraceContext span = StartSpan(parents, {"a=1"}, Counted);
    EXPECT_TRUE(ParseTraceParent(TraceParentText(span)).has_value());
    EXPECT_NE(span.trace_id, kTrace);
    EXPECT_NE(span.trace_id, StartSpan(parents, {}, Counted).trace_id);
    EXPECT_EQ(span.flags, "00");
    EXPECT_EQ(span.state, "");
  }
}

}  // namespace
}  // namespace coppice
