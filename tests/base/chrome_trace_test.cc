#include "base/chrome_trace.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

TEST(ChromeTrace, EventsAreLinesOfADocument) {
  ChromeTrace trace;
  trace.NameTrack(1, 2, "\"engine\"");
  trace.Span(1, 2, "step", 0.5, 0.25, {{"rows", "3"}, {"kind", "\"a\""}});
  trace.Overlapping(1, 255, "round", 1, 2);
  EXPECT_EQ(ChromeTraceDocument(trace.Take(), "{}"),
            R"({"traceEvents":[
{"name":"thread_name","cat":"coppice","ph":"M","pid":1,"ts":0.000,"tid":2,"args":{"name":"engine"}},
{"name":"step","cat":"coppice","ph":"X","pid":1,"ts":500000.000,"tid":2,"dur":250000.000,"args":{"rows":3,"kind":"a"}},
{"name":"round","cat":"coppice","ph":"b","pid":1,"ts":1000000.000,"tid":0,"id":"0xff"},
{"name":"round","cat":"coppice","ph":"e","pid":1,"ts":3000000.000,"tid":0,"id":"0xff"}
],"displayTimeUnit":"ms","otherData":{}})");
  EXPECT_EQ(trace.Take(), "");
}

TEST(ChromeTrace, NothingLastsLessThanNoTime) {
  ChromeTrace trace;
  trace.Span(1, 0, "a", 1, -1);
  EXPECT_NE(trace.Take().find("\"dur\":0.000"), std::string::npos);
}

}  // namespace
}  // namespace coppice
