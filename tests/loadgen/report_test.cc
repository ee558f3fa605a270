#include "loadgen/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace coppice::loadgen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Due at 0.5 s and sent at 1 s. Texts at 1.2, 1.3 and 1.5 s. Ends at 1.6 s with 5 tokens.
RequestRecord GoodRecord() {
  RequestRecord r;
  r.intended_s = 0.5;
  r.sent_s = 1.0;
  r.text_times_s = {1.2, 1.3, 1.5};
  r.end_s = 1.6;
  r.status = 200;
  r.ok = true;
  r.prompt_tokens = 7;
  r.output_tokens = 5;
  r.tokens_from_usage = true;
  return r;
}

RequestRecord FailedRecord() {
  RequestRecord r;
  r.sent_s = 1.0;
  r.end_s = 2.0;
  r.status = 429;
  r.error = "queue_full: later";
  return r;
}

TEST(Percentile, InterpolatesLinearly) {
  EXPECT_DOUBLE_EQ(Percentile({1, 2, 3, 4}, 50), 2.5);
  EXPECT_DOUBLE_EQ(Percentile({1, 2, 3, 4}, 99), 3.97);
  EXPECT_DOUBLE_EQ(Percentile({1, 2, 3, 4}, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile({1, 2, 3, 4}, 100), 4);
  EXPECT_DOUBLE_EQ(Percentile({5}, 99), 5);
}

TEST(Summarize, MatchesHandComputedValues) {
  const SampleStatistics s = Summarize({4, 2, 8, 6});
  EXPECT_EQ(s.count, 4u);
  EXPECT_DOUBLE_EQ(s.mean, 5);
  EXPECT_DOUBLE_EQ(s.median, 5);
  EXPECT_DOUBLE_EQ(s.std, std::sqrt(5.0));
  EXPECT_DOUBLE_EQ(s.p90, 7.4);
  EXPECT_DOUBLE_EQ(s.max, 8);
  EXPECT_EQ(Summarize({}).count, 0u);
}

TEST(Report, LatenciesFollowTheirDefinitions) {
  const RunReport report = MakeReport({GoodRecord()}, {.request_rate = kInf});
  EXPECT_NEAR(report.ttft_ms.mean, 200, 1e-9);
  EXPECT_NEAR(report.itl_ms.mean, 150, 1e-9);
  EXPECT_NEAR(report.tpot_ms.mean, 100, 1e-9);  // (0.6 - 0.2) / 4
  EXPECT_NEAR(report.e2el_ms.mean, 600, 1e-9);
  EXPECT_NEAR(report.client_queue_ms.mean, 500, 1e-9);
  EXPECT_NEAR(report.e2el_queued_ms.mean, 1100, 1e-9);
  EXPECT_NEAR(report.ttft_queued_ms.mean, 700, 1e-9);
  EXPECT_NEAR(report.duration_s, 1.6, 1e-12);
  EXPECT_NEAR(report.output_throughput, 5 / 1.6, 1e-9);
}

TEST(Report, TpotIsPerChoice) {
  RequestRecord r = GoodRecord();
  r.choices = 2;
  r.output_tokens = 10;
  EXPECT_NEAR(MakeReport({r}, {.request_rate = kInf}).tpot_ms.mean, 100, 1e-9);
}

TEST(Report, FailuresAreCountedAndNotMeasured) {
  RequestRecord late = FailedRecord();
  late.status = 0;
  late.timed_out = true;
  late.error = "timed out after 1 s";
  const RunReport report = MakeReport({GoodRecord(), FailedRecord(), late}, {.request_rate = kInf});
  EXPECT_EQ(report.completed, 1);
  EXPECT_EQ(report.failed, 2);
  EXPECT_EQ(report.timed_out, 1);
  EXPECT_EQ(report.status_counts.at(429), 1);
  EXPECT_EQ(report.status_counts.at(0), 1);
  EXPECT_EQ(report.e2el_ms.count, 1u);
  EXPECT_EQ(report.peak_concurrent, 3);
  const std::string table = ReportTable(report, {.request_rate = kInf});
  EXPECT_THAT(table, HasSubstr("Failed (1): queue_full: later"));
}

TEST(Report, LateClientIsInvalidInOpenLoopOnly) {
  RunSettings open = {.request_rate = 10, .max_send_lag_ms = 10};
  EXPECT_FALSE(MakeReport({GoodRecord()}, open).valid);  // 500 ms late
  EXPECT_THAT(ReportTable(MakeReport({GoodRecord()}, open), open), HasSubstr("INVALID"));
  RequestRecord prompt_one = GoodRecord();
  prompt_one.intended_s = 0.995;
  EXPECT_TRUE(MakeReport({prompt_one}, open).valid);
  open.max_concurrency = 1;
  EXPECT_TRUE(MakeReport({GoodRecord()}, open).valid);
}

TEST(Report, SpeculationIsSummedOverRequests) {
  RequestRecord a = GoodRecord(), b = GoodRecord();
  a.speculation = SpeculationUsage{.rounds = 4,
                                   .plain_rounds = 1,
                                   .target_passes = 4,
                                   .layers = 10,
                                   .drafted_nodes = 24,
                                   .accepted_nodes = 9,
                                   .accepted_by_layer = {6, 3},
                                   .accepted_width = 2.0};
  b.speculation = SpeculationUsage{.rounds = 1,
                                   .plain_rounds = 0,
                                   .target_passes = 1,
                                   .layers = 2,
                                   .drafted_nodes = 8,
                                   .accepted_nodes = 3,
                                   .accepted_by_layer = {1, 1, 1},
                                   .accepted_width = 1.0};
  const RunSettings settings = {.request_rate = kInf};
  const std::vector<RequestRecord> records = {a, b, GoodRecord()};
  const RunReport report = MakeReport(records, settings);
  const nlohmann::json json = ResultJson(report, settings, records, /*detailed=*/true);
  EXPECT_DOUBLE_EQ(json["layers_per_pass"], 12.0 / 5);
  EXPECT_DOUBLE_EQ(json["accepted_width"], 1.5);
  EXPECT_DOUBLE_EQ(json["spec_decode_acceptance_rate"], 100 * 12.0 / 32);
  EXPECT_DOUBLE_EQ(json["spec_decode_acceptance_length"], 1 + 12.0 / 4);
  EXPECT_EQ(json["spec_decode_per_position_acceptance_rates"],
            nlohmann::json({7.0 / 4, 4.0 / 4, 1.0 / 4}));
  EXPECT_EQ(json["spec_decode_num_drafts"], 4);
  EXPECT_EQ(json["latencies"].size(), 3u);
}

TEST(Report, EnergyIsOfTheRequestsThatHaveAFigure) {
  const RunSettings settings = {.request_rate = kInf};
  RequestRecord a = GoodRecord(), b = GoodRecord();
  a.energy_joules = 3;
  b.energy_joules = 4.5;
  std::vector<RequestRecord> records = {a, b, FailedRecord()};
  nlohmann::json json = ResultJson(MakeReport(records, settings), settings, records, false);
  EXPECT_DOUBLE_EQ(json["energy_joules"], 7.5);
  EXPECT_DOUBLE_EQ(json["joules_per_token"], 0.75);
  std::string table = ReportTable(MakeReport(records, settings), settings);
  EXPECT_THAT(table, HasSubstr("Energy (J):                              7.50"));
  EXPECT_THAT(table, HasSubstr("Energy per output token (J):             0.75"));
  EXPECT_THAT(table, Not(HasSubstr("Requests with a figure")));

  records.push_back(GoodRecord());  // a part is no whole
  json = ResultJson(MakeReport(records, settings), settings, records, false);
  EXPECT_TRUE(json["energy_joules"].is_null());
  EXPECT_TRUE(json["joules_per_token"].is_null());
  EXPECT_EQ(json["energy_reports"], 2);
  table = ReportTable(MakeReport(records, settings), settings);
  EXPECT_THAT(table, HasSubstr("Requests with a figure:                  2"));
  EXPECT_THAT(table, HasSubstr("Energy per output token (J):             0.75"));

  EXPECT_THAT(ReportTable(MakeReport({GoodRecord()}, settings), settings),
              HasSubstr("Energy:                                  none in usage"));
}

TEST(Report, WhatWasNotMeasuredIsNull) {
  const RunSettings settings = {.request_rate = kInf, .metadata = {"host=a=b"}};
  const nlohmann::json json =
      ResultJson(MakeReport({FailedRecord()}, settings), settings, {FailedRecord()}, false);
  EXPECT_TRUE(json["mean_ttft_ms"].is_null());
  EXPECT_TRUE(json["layers_per_pass"].is_null());
  EXPECT_TRUE(json["send_lag_ms"].is_null());
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_EQ(json["host"], "a=b");
  EXPECT_FALSE(json.contains("ttfts"));
}

}  // namespace
}  // namespace coppice::loadgen
