#include "worker/step_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/testing/temp_dir.h"

namespace coppice::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StepTraceTest : public ::testing::Test {
 protected:
  std::string File() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  ManualClock clock_;
  test::TempDir folder_;
  const std::string path_ = folder_.path() + "/trace.json";
};

TEST_F(StepTraceTest, WithoutAFileOrARecordNothingIsKept) {
  StepTrace trace("", &clock_);
  EXPECT_FALSE(trace.on());
  EXPECT_EQ(trace.Timed("plan", [] { return 3; }), 3);
  EXPECT_FALSE(trace.recorded());
  EXPECT_EQ(trace.TakeRecord().spans_size(), 0);
}

TEST_F(StepTraceTest, ARecordHasWhatHappenedInItsTime) {
  StepTrace trace("", &clock_);
  clock_.now_s = 10;
  trace.Record(5, 2);
  trace.Timed("plan", [&] { clock_.now_s = 10.5; });
  trace.Add({"round", StepSpan::kOverlapping, 9, 1.5, 77, {{"rows", 4}}});
  EXPECT_FALSE(trace.recorded());
  clock_.now_s = 12;
  EXPECT_TRUE(trace.recorded());
  const proto::StepTrace record = trace.TakeRecord();
  EXPECT_EQ(record.id(), 5);
  ASSERT_EQ(record.spans_size(), 2);
  EXPECT_EQ(record.spans(0).name(), "plan");
  EXPECT_EQ(record.spans(0).begin_s(), 0);
  EXPECT_EQ(record.spans(0).seconds(), 0.5);
  EXPECT_EQ(record.spans(1).begin_s(), -1);
  EXPECT_EQ(record.spans(1).track(), -1);
  EXPECT_EQ(record.spans(1).sequence_id(), 77);
  EXPECT_EQ(record.spans(1).args().at("rows"), 4);
  EXPECT_FALSE(trace.on());
  EXPECT_FALSE(trace.recorded());
}

TEST_F(StepTraceTest, ARecordIsBoundedAndCountsWhatIsLeftOut) {
  StepTrace trace("", &clock_);
  trace.Record(1, 60);
  for (size_t i = 0; i < StepTrace::kMostRecorded + 3; ++i) trace.Add({"a"});
  const proto::StepTrace record = trace.TakeRecord();
  EXPECT_EQ(record.spans_size(), StepTrace::kMostRecorded);
  EXPECT_EQ(record.dropped(), 3);
}

TEST_F(StepTraceTest, AFileIsWrittenStepByStep) {
  {
    StepTrace trace(path_, &clock_);
    trace.Timed("plan", [&] { clock_.now_s = 1; });
    trace.Write();
    trace.Record(1, 1);
    EXPECT_EQ(trace.TakeRecord().spans_size(), 0);
    EXPECT_TRUE(trace.on());  // for the file
    trace.Add({"round", StepSpan::kOverlapping, 0, 1, 3});
  }
  const std::string text = File();
  EXPECT_EQ(text.substr(0, 2), "[\n");
  EXPECT_EQ(text.substr(text.size() - 3), "}]\n");
  EXPECT_THAT(text, HasSubstr("\"name\":\"plan\""));
  EXPECT_THAT(text, HasSubstr("\"ph\":\"e\""));
  EXPECT_THAT(text, HasSubstr("\"sequence\":\"3\""));
}

TEST_F(StepTraceTest, AFileThatCannotBeOpenedIsNoTrace) {
  StepTrace trace(folder_.path() + "/none/trace.json", &clock_);
  EXPECT_FALSE(trace.on());
}

}  // namespace
}  // namespace coppice::worker
