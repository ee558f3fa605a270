#include "loadgen/server_info.h"

#include <gtest/gtest.h>

namespace coppice::loadgen {
namespace {

TEST(ServerCounters, AreSummedOverLabels) {
  const ServerCounters counters = ParseCounters(
      "# HELP vllm:spec_decode_num_drafts_total drafts {a} 1\n"
      "vllm:spec_decode_num_drafts_total{engine=\"0\",model_name=\"a b\"} 3.0\n"
      "vllm:spec_decode_num_drafts_total{engine=\"1\",model_name=\"a b\"} 4 1700000000000\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 5\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{x=\"1\",position=\"2\"} 1\n"
      "vllm:cache NaN\nother_metric 9\nvllm:broken{\n\n");
  EXPECT_EQ(counters.totals.at("spec_decode_num_drafts"), 7);
  EXPECT_EQ(counters.accepted_by_position.at(0), 5);
  EXPECT_EQ(counters.accepted_by_position.at(2), 1);
  EXPECT_EQ(counters.totals.count("other_metric"), 0u);
  EXPECT_EQ(counters.totals.count("cache"), 0u);
}

TEST(ServerCounters, OfTwoPrefixesOneIsEnough) {
  const ServerCounters both = ParseCounters(
      "vllm:spec_decode_num_drafts_total 3\ncoppice_spec_decode_num_drafts_total 3\n");
  EXPECT_EQ(both.totals.at("spec_decode_num_drafts"), 3);
  const ServerCounters llama = ParseCounters("llamacpp:spec_decode_num_draft_tokens 6\n");
  EXPECT_EQ(llama.totals.at("spec_decode_num_draft_tokens"), 6);  // without _total
}

TEST(ServerCounters, WhatHappenedIsTheirDifference) {
  const ServerCounters before = ParseCounters(
      "coppice_spec_decode_num_drafts_total 10\n"
      "coppice_spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 4\n"
      "coppice_spec_decode_accepted_width_sum 3\ncoppice_spec_decode_accepted_width_count 2\n");
  const ServerCounters after = ParseCounters(
      "coppice_spec_decode_num_drafts_total 14\n"
      "coppice_spec_decode_target_passes_total 8\ncoppice_spec_decode_layers_total 20\n"
      "coppice_spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 7\n"
      "coppice_spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 1\n"
      "coppice_spec_decode_accepted_width_sum 13\ncoppice_spec_decode_accepted_width_count 6\n");
  const auto usage = SpeculationBetween(before, after);
  ASSERT_TRUE(usage.has_value());
  EXPECT_EQ(usage->rounds, 4);
  EXPECT_EQ(usage->layers, 20);
  EXPECT_EQ(usage->accepted_by_layer, (std::vector<int64_t>{3, 1}));
  EXPECT_DOUBLE_EQ(*usage->accepted_width, 2.5);
  EXPECT_FALSE(SpeculationBetween(after, after).has_value());
  EXPECT_FALSE(EnergyBetween(before, after).has_value());
}

}  // namespace
}  // namespace coppice::loadgen
