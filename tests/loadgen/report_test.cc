#include "loadgen/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace coppice::loadgen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A run against one server.
RunSettings OneServer() { return {.urls = {"http://one:80"}}; }

// Due at 0.5 s and sent at 1 s. Texts at 1.2, 1.3 and 1.5 s. Ends at 1.6 s with 5 tokens.
RequestRecord GoodRecord() {
  RequestRecord r;
  r.intended_s = 0.5;
  r.sent_s = 1.0;
  r.text_times_s = {1.2, 1.3, 1.5};
  r.end_s = 1.6;
  r.endpoint = 0;
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
  r.endpoint = 0;
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
  const RunReport report = MakeReport({GoodRecord()}, OneServer());
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
  EXPECT_NEAR(MakeReport({r}, OneServer()).tpot_ms.mean, 100, 1e-9);
}

TEST(Report, FailuresAreCountedAndNotMeasured) {
  RequestRecord late = FailedRecord();
  late.status = 0;
  late.timed_out = true;
  late.error = "timed out after 1 s";
  const RunReport report = MakeReport({GoodRecord(), FailedRecord(), late}, OneServer());
  EXPECT_EQ(report.completed, 1);
  EXPECT_EQ(report.failed, 2);
  EXPECT_EQ(report.timed_out, 1);
  EXPECT_EQ(report.status_counts.at(429), 1);
  EXPECT_EQ(report.status_counts.at(0), 1);
  EXPECT_EQ(report.e2el_ms.count, 1u);
  EXPECT_EQ(report.peak_concurrent, 3);
  const std::string table = ReportTable(report, OneServer());
  EXPECT_THAT(table, HasSubstr("Not completed (1): queue_full: later"));
}

TEST(Report, LateClientIsInvalidInOpenLoopOnly) {
  RunSettings open = OneServer();
  open.open_loop = true;
  open.request_rate = 10;
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
  const RunSettings settings = OneServer();
  const std::vector<RequestRecord> records = {a, b, GoodRecord()};
  const RunReport report = MakeReport(records, settings);
  const nlohmann::json json = ResultJson(report, settings, records, Detail::kArrays);
  EXPECT_DOUBLE_EQ(json["block_efficiency"], 12.0 / 5);
  EXPECT_DOUBLE_EQ(json["accepted_width"], 1.5);
  EXPECT_DOUBLE_EQ(json["spec_decode_acceptance_rate"], 100 * 12.0 / 32);
  EXPECT_DOUBLE_EQ(json["spec_decode_acceptance_length"], 1 + 12.0 / 4);
  EXPECT_EQ(json["spec_decode_per_position_acceptance_rates"],
            nlohmann::json({7.0 / 4, 4.0 / 4, 1.0 / 4}));
  EXPECT_EQ(json["spec_decode_num_drafts"], 4);
  EXPECT_EQ(json["latencies"].size(), 3u);
}

TEST(Report, EnergyIsOfTheRequestsThatHaveAFigure) {
  const RunSettings settings = OneServer();
  RequestRecord a = GoodRecord(), b = GoodRecord();
  a.energy_joules = 3;
  b.energy_joules = 4.5;
  std::vector<RequestRecord> records = {a, b, FailedRecord()};
  nlohmann::json json =
      ResultJson(MakeReport(records, settings), settings, records, Detail::kSummary);
  EXPECT_DOUBLE_EQ(json["energy_joules"], 7.5);
  EXPECT_DOUBLE_EQ(json["joules_per_token"], 0.75);
  std::string table = ReportTable(MakeReport(records, settings), settings);
  EXPECT_THAT(table, HasSubstr("Energy (J):                              7.50"));
  EXPECT_THAT(table, HasSubstr("Energy per output token (J):             0.75"));
  EXPECT_THAT(table, Not(HasSubstr("Requests with a figure")));

  records.push_back(GoodRecord());  // a part is no whole
  json = ResultJson(MakeReport(records, settings), settings, records, Detail::kSummary);
  EXPECT_TRUE(json["energy_joules"].is_null());
  EXPECT_TRUE(json["joules_per_token"].is_null());
  EXPECT_EQ(json["energy_reports"], 2);
  table = ReportTable(MakeReport(records, settings), settings);
  EXPECT_THAT(table, HasSubstr("Requests with a figure:                  2"));
  EXPECT_THAT(table, HasSubstr("Energy per output token (J):             0.75"));

  EXPECT_THAT(ReportTable(MakeReport({GoodRecord()}, settings), settings),
              HasSubstr("Energy:                                  none in usage or /metrics"));
}

TEST(Report, WhatWasNotMeasuredIsNull) {
  RunSettings settings = OneServer();
  settings.metadata = {"host=a=b"};
  const nlohmann::json json = ResultJson(MakeReport({FailedRecord()}, settings), settings,
                                         {FailedRecord()}, Detail::kSummary);
  EXPECT_TRUE(json["mean_ttft_ms"].is_null());
  EXPECT_TRUE(json["block_efficiency"].is_null());
  EXPECT_TRUE(json["send_lag_ms"].is_null());
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_EQ(json["host"], "a=b");
  EXPECT_FALSE(json.contains("ttfts"));
  EXPECT_TRUE(json["request_goodput"].is_null());
  EXPECT_TRUE(json["server_version"].is_null());
}

RequestRecord CutRecord(bool cancelled) {
  RequestRecord r = FailedRecord();
  r.status = 200;
  (cancelled ? r.cancelled : r.unfinished) = true;
  r.error = cancelled ? "cancelled after 1 s" : "still running when the run ended";
  return r;
}

// The good record has, from its intended time, 700 ms to the first text and 1100 ms to the end; 100
// ms per token.
TEST(Goodput, CountsFromTheIntendedTime) {
  const RequestRecord r = GoodRecord();
  const auto meets = [&](const char* text) { return Meets(r, *ParseObjectives(text)); };
  EXPECT_TRUE(meets("ttft:700.1 tpot:100.1 e2el:1100.1"));
  EXPECT_FALSE(meets("ttft:699.9"));  // it was 200 ms from sending
  EXPECT_FALSE(meets("tpot:99.9"));
  EXPECT_FALSE(meets("e2el:1099.9"));
  RequestRecord one = r;
  one.output_tokens = 1;  // no token after the first
  EXPECT_TRUE(Meets(one, *ParseObjectives("tpot:1")));
  one.text_times_s.clear();
  EXPECT_FALSE(Meets(one, *ParseObjectives("ttft:1e9")));
  EXPECT_FALSE(Meets(FailedRecord(), *ParseObjectives("e2el:1e9")));
}

TEST(Goodput, BadObjectivesAreRefused) {
  for (const char* bad : {"ttft", "ttft:", "ttft:x", "itl:3", "ttft:1 ttft:2", "e2el:0", "tpot:-1"})
    EXPECT_FALSE(ParseObjectives(bad).ok()) << bad;
  EXPECT_FALSE(ParseObjectives("")->any());
  EXPECT_EQ(ParseObjectives("ttft:1,tpot:2\ne2el:3")->e2el_ms, 3);
}

TEST(Goodput, FailedAndUnfinishedMissAndCancelledAreNotAsked) {
  RunSettings settings = OneServer();
  settings.objectives = *ParseObjectives("e2el:2000");
  const std::vector<RequestRecord> records = {GoodRecord(), FailedRecord(), CutRecord(true),
                                              CutRecord(false)};
  const RunReport report = MakeReport(records, settings);
  EXPECT_EQ(report.completed, 1);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.cancelled, 1);
  EXPECT_EQ(report.unfinished, 1);
  EXPECT_DOUBLE_EQ(*report.request_goodput, 0.5);  // one in the 2 s of the run
  EXPECT_DOUBLE_EQ(*report.good_share, 1.0 / 3);
  const nlohmann::json json = ResultJson(report, settings, records, Detail::kSummary);
  EXPECT_EQ(json["cancelled"], 1);
  EXPECT_DOUBLE_EQ(json["request_goodput"], 0.5);
  EXPECT_THAT(ReportTable(report, settings),
              HasSubstr("Request goodput (req/s):                 0.50"));
}

TEST(Report, EveryServerHasItsCounts) {
  RunSettings settings = {.endpoint = "/v1/completions",
                          .urls = {"http://one:80", "http://two:80"}};
  RequestRecord other = GoodRecord(), unsent = CutRecord(false);
  other.endpoint = 1;
  unsent.endpoint = -1;
  const std::vector<RequestRecord> records = {GoodRecord(), other, other, FailedRecord(), unsent};
  const RunReport report = MakeReport(records, settings);
  const nlohmann::json json = ResultJson(report, settings, records, Detail::kSummary);
  EXPECT_EQ(json["endpoints"][0]["url"], "http://one:80/v1/completions");
  EXPECT_EQ(json["endpoints"][0]["requests"], 2);
  EXPECT_EQ(json["endpoints"][0]["failed"], 1);
  EXPECT_EQ(json["endpoints"][1]["completed"], 2);
  EXPECT_EQ(json["endpoints"][1]["output_tokens"], 10);
  EXPECT_EQ(report.peak_concurrent, 4);  // what was never sent is no stream
  EXPECT_FALSE(json["status_counts"].contains("0"));
}

TEST(Report, ResultHasEveryKeyOfTheReference) {
  const RunSettings settings = OneServer();
  const nlohmann::json json = ResultJson(MakeReport({GoodRecord()}, settings), settings,
                                         {GoodRecord()}, Detail::kArraysAndTexts);
  for (const char* key : {"date",
                          "backend",
                          "label",
                          "model_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "spec_decode_acceptance_rate",
                          "spec_decode_acceptance_length",
                          "spec_decode_num_drafts",
                          "spec_decode_draft_tokens",
                          "spec_decode_accepted_tokens",
                          "spec_decode_per_position_acceptance_rates",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "latencies",
                          "start_times",
                          "queue_times",
                          "errors",
                          "generated_texts",
                          "schema_version",
                          "valid",
                          "cancelled",
                          "timed_out",
                          "status_counts",
                          "block_efficiency",
                          "accepted_width",
                          "energy_joules",
                          "joules_per_token",
                          "send_lag_ms",
                          "endpoints",
                          "server_version",
                          "command_line",
                          "token_count_source",
                          "client"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const std::string name : {"ttft", "tpot", "itl", "e2el", "client_queue_time",
                                 "e2el_including_client_queue", "ttft_including_client_queue"}) {
    for (const std::string kind : {"mean", "median", "std", "p90", "p95", "p99"})
      EXPECT_TRUE(json[kind + "_" + name + "_ms"].is_number()) << kind << name;
  }
  EXPECT_FALSE(
      ResultJson(MakeReport({GoodRecord()}, settings), settings, {GoodRecord()}, Detail::kArrays)
          .contains("generated_texts"));
}

TEST(Report, CountersOfTheServersFillInForUsage) {
  ServerCounters before, after;
  before.totals = {{"spec_decode_num_drafts", 5}, {"energy_joules", 100}};
  after.totals = {{"spec_decode_num_drafts", 15},
                  {"spec_decode_num_draft_tokens", 40},
                  {"spec_decode_num_accepted_tokens", 20},
                  {"energy_joules", 150}};
  after.accepted_by_position = {{0, 8}, {1, 12}};
  const RunSettings settings = OneServer();
  RunReport report = MakeReport({GoodRecord()}, settings);
  AddCounters(before, after, &report);
  const nlohmann::json json = ResultJson(report, settings, {GoodRecord()}, Detail::kSummary);
  EXPECT_EQ(json["spec_decode_source"], "metrics");
  EXPECT_EQ(json["spec_decode_num_drafts"], 10);
  EXPECT_DOUBLE_EQ(json["spec_decode_acceptance_rate"], 50);
  EXPECT_DOUBLE_EQ(json["spec_decode_acceptance_length"], 3);
  EXPECT_EQ(json["spec_decode_per_position_acceptance_rates"], nlohmann::json({0.8, 1.2}));
  EXPECT_TRUE(json["spec_decode_plain_rounds"].is_null());
  EXPECT_DOUBLE_EQ(json["energy_joules"], 50);
  EXPECT_DOUBLE_EQ(json["joules_per_token"], 10);
  EXPECT_EQ(json["energy_source"], "metrics");

  RequestRecord measured = GoodRecord();
  measured.energy_joules = 3;
  measured.speculation = SpeculationUsage{.rounds = 2};
  report = MakeReport({measured}, settings);
  AddCounters(before, after, &report);
  EXPECT_STREQ(report.energy_source, "usage");
  EXPECT_EQ(report.energy_joules, 3);
  EXPECT_EQ(report.speculation.rounds, 2);
}

}  // namespace
}  // namespace coppice::loadgen
