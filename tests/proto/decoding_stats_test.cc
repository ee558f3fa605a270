// A new statistic may be forgotten in the conversions or in Merge. Both tests go through the fields
// of the message, so a field that is not converted or not added fails.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "proto/convert.h"

namespace coppice::proto {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

double Number(const Message& message, const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE
             ? message.GetReflection()->GetDouble(message, field)
             : static_cast<double>(message.GetReflection()->GetUInt64(message, field));
}

// All numbers differ, and rounds is larger than plain_rounds.
proto::SequenceStats Filled() {
  proto::SequenceStats message;
  message.set_method("dsbd");
  message.set_lossless(true);
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->is_repeated()) {
      for (int layer = 0; layer < 3; ++layer) reflection->AddUInt64(&message, field, 7 + layer);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
      reflection->SetUInt64(&message, field, 1000 - field->number());
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      reflection->SetDouble(&message, field, 0.25 + field->number());
    }
  }
  return message;
}

TEST(DecodingStatsTest, EveryFieldSurvivesTheRoundTrip) {
  const proto::SequenceStats sent = Filled();
  const auto stats = StatsFromMessage(sent, /*most_layers=*/3);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(StatsToMessage(*stats).SerializeAsString(), sent.SerializeAsString());
}

TEST(DecodingStatsTest, EveryFieldAddsUp) {
  const proto::SequenceStats one = Filled();
  DecodingStats sum;
  sum.accepted_by_layer = {1};
  for (int times = 0; times < 2; ++times) sum.Merge(*StatsFromMessage(one, 3));
  EXPECT_EQ(sum.method, "dsbd");
  EXPECT_TRUE(sum.lossless);
  EXPECT_EQ(sum.accepted_by_layer, (std::vector<int64_t>{15, 16, 18}));
  const proto::SequenceStats both = StatsToMessage(sum);
  for (int i = 0; i < one.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = one.GetDescriptor()->field(i);
    if (field->is_repeated() || field->cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
        field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL)
      continue;
    const double factor = field->name() == "queue_ms" ? 1 : 2;  // queue_ms is the longest wait
    EXPECT_EQ(Number(both, field), factor * Number(one, field)) << field->name();
  }
}

TEST(DecodingStatsTest, APartWithoutAMethodChangesNone) {
  coppice::DecodingStats sum, lossy, round;
  lossy.method = "mjsd";
  lossy.lossless = false;
  sum.Merge(lossy);
  sum.Merge(round);
  EXPECT_EQ(sum.method, "mjsd");
  EXPECT_FALSE(sum.lossless);
}

TEST(DecodingStatsTest, MeansAreOfSums) {
  coppice::DecodingStats stats;
  for (auto mean : {stats.block_efficiency(), stats.accepted_width(), stats.draft_width(),
                    stats.draft_depth(), stats.overlap()})
    EXPECT_FALSE(mean);
  coppice::DecodingStats plain, drafted;
  plain.rounds = plain.plain_rounds = plain.target_passes = plain.layers = 1;
  drafted.rounds = drafted.target_passes = 3;
  drafted.layers = 7;
  drafted.draft_width_sum = 12;
  drafted.draft_depth_sum = 6;
  drafted.accepted_nodes = 9;
  stats.Merge(plain);
  EXPECT_FALSE(stats.accepted_width());
  stats.Merge(drafted);
  EXPECT_EQ(stats.block_efficiency(), 2);
  EXPECT_EQ(stats.draft_width(), 4);
  EXPECT_EQ(stats.draft_depth(), 2);
  EXPECT_EQ(stats.accepted_width(), 0);  // drafted, but no layer accepted anything
  stats.accepting_layers = 6;
  EXPECT_EQ(stats.accepted_width(), 1.5);
  EXPECT_FALSE(stats.overlap());
  stats.overlap_sum = 1.5;
  stats.overlap_layers = 2;
  EXPECT_EQ(stats.overlap(), 0.75);
}

}  // namespace
}  // namespace coppice::proto
