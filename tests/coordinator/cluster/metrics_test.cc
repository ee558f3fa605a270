#include "coordinator/cluster/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <sstream>

#include "absl/strings/str_split.h"
#include "tests/coordinator/fake_worker.h"

namespace coppice::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Node Replica(uint64_t queries) {
  Node node;
  node.id = "replica-0";
  node.registration = WorkerRegistration("replica-0");
  node.status.set_kv_blocks_total(100);
  node.status.set_kv_blocks_used(25);
  node.status.set_kv_blocks_cached(5);
  node.status.mutable_counters()->set_prefix_cache_queries(queries);
  (*node.status.mutable_counters()->mutable_rounds_without_draft())["late"] = 3;
  return node;
}

TEST(Metrics, KnownSeriesExistFromTheStart) {
  const std::string text = Metrics("demo").Text();
  EXPECT_THAT(
      text,
      HasSubstr(
          "coppice_request_success_total{finished_reason=\"abort\",model_name=\"demo\"} 0\n"));
  EXPECT_THAT(
      text,
      HasSubstr("coppice_request_refused_total{code=\"queue_full\",model_name=\"demo\"} 0\n"));
  EXPECT_THAT(text,
              HasSubstr("coppice_time_to_first_token_seconds_count{model_name=\"demo\"} 0\n"));
  EXPECT_THAT(text,
              HasSubstr("coppice_num_requests_waiting{model_name=\"demo\",replica=\"\"} 0\n"));
}

TEST(Metrics, DraftsThatWereFoundInTexts) {
  Metrics metrics("demo");
  Node node = Replica(0);
  metrics.NodeUp(node, true);
  const auto series = [](const char* name, const char* value) {
    return HasSubstr(std::string("coppice_suffix_") + name +
                     "_total{replica=\"replica-0\",source=\"corpus\"} " + value + "\n");
  };
  EXPECT_THAT(metrics.Text(), series("draft_tokens", "0"));
  EXPECT_THAT(metrics.Text(), series("accepted_tokens", "0"));
  (*node.status.mutable_counters()->mutable_suffix_nodes_drafted())["corpus"] = 9;
  (*node.status.mutable_counters()->mutable_suffix_nodes_accepted())["corpus"] = 4;
  node.status.mutable_suffix_drafts()->set_index_bytes(640);
  metrics.NodeStatus(node);
  EXPECT_THAT(metrics.Text(), series("draft_tokens", "9"));
  EXPECT_THAT(metrics.Text(), series("accepted_tokens", "4"));
  EXPECT_THAT(metrics.Text(), HasSubstr("coppice_suffix_index_bytes{replica=\"replica-0\"} 640\n"));
}

TEST(Metrics, WhatDraftNodesDoForAReplica) {
  Metrics metrics("demo");
  Node node = Replica(0);
  metrics.NodeUp(node, true);
  EXPECT_THAT(metrics.Text(),
              HasSubstr("coppice_draft_moves_total{reason=\"slow\",replica=\"replica-0\"} 0\n"));
  (*node.status.mutable_counters()->mutable_draft_moves())["slow"] = 2;
  proto::DraftNodeUse* use = node.status.add_draft_nodes();
  use->set_node_id("draft-0");
  use->set_sessions(3);
  use->set_mean_reply_s(0.5);
  metrics.NodeStatus(node);
  const auto series = [](const char* name, const char* value) {
    return HasSubstr(std::string("coppice_") + name +
                     "{draft_node=\"draft-0\",replica=\"replica-0\"} " + value + "\n");
  };
  EXPECT_THAT(metrics.Text(),
              HasSubstr("coppice_draft_moves_total{reason=\"slow\",replica=\"replica-0\"} 2\n"));
  EXPECT_THAT(metrics.Text(), series("draft_sessions", "3"));
  EXPECT_THAT(metrics.Text(), series("draft_reply_seconds", "0.5"));
  node.status.clear_draft_nodes();
  metrics.NodeStatus(node);
  EXPECT_THAT(metrics.Text(), series("draft_sessions", "0"));
  EXPECT_THAT(metrics.Text(), series("draft_reply_seconds", "0"));
  metrics.ForgetNode("draft-0");
  metrics.NodeStatus(node);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("draft-0")));
}

TEST(Metrics, RowsOfStepsAreMeansSinceTheLastHeartbeat) {
  Metrics metrics("demo");
  Node node = Replica(0);
  node.registration.set_max_rows(512);
  proto::Histogram* rows = node.status.mutable_counters()->mutable_step_rows();
  rows->add_counts(3);
  rows->add_counts(1);
  rows->set_sum(100);
  metrics.NodeStatus(node);
  EXPECT_THAT(metrics.Text(), HasSubstr("coppice_step_rows{replica=\"replica-0\"} 25\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("coppice_step_rows_limit{replica=\"replica-0\"} 512\n"));
  rows->set_counts(1, 3);
  rows->set_sum(700);
  metrics.NodeStatus(node);
  EXPECT_THAT(metrics.Text(), HasSubstr("coppice_step_rows{replica=\"replica-0\"} 300\n"));
  metrics.NodeStatus(node);
  EXPECT_THAT(metrics.Text(), HasSubstr("coppice_step_rows{replica=\"replica-0\"} 0\n"));
}

// Methods, positions and handlers that are never used would be thousands of series.
TEST(Metrics, SeriesOfManyValuesBeginWithTheirFirstUse) {
  Metrics metrics("demo");
  metrics.NodeUp(Replica(0), true);
  metrics.NodeStatus(Replica(0));
  const std::string text = metrics.Text();
  EXPECT_THAT(text, Not(HasSubstr("method=\"gumbel")));
  EXPECT_THAT(text, Not(HasSubstr("position=")));
  EXPECT_THAT(text, Not(HasSubstr("http_request_duration_seconds_count")));
  EXPECT_THAT(text, HasSubstr("coppice_http_requests_total{handler=\"completions\",method="
                              "\"POST\",status=\"2xx\"} 0\n"));
  int series = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    series += !line.empty() && line[0] != '#';
  EXPECT_LT(series, 600);
}

TEST(Metrics, TheProcessHasTheStandardMetrics) {
  const std::string text = "\n" + Metrics("demo").Text();
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_GE(value("process_cpu_seconds_total"), 0);
  EXPECT_LT(value("process_cpu_seconds_total"), 3600);
  const double resident = value("process_resident_memory_bytes");
  EXPECT_GT(resident, 1 << 20);
  EXPECT_GT(value("process_virtual_memory_bytes"), resident);
  const double open = value("process_open_fds");
  EXPECT_GE(open, 3);
  EXPECT_GE(value("process_max_fds"), open);
  EXPECT_GT(value("process_start_time_seconds"), 1.7e9);
  EXPECT_LT(value("process_start_time_seconds"), static_cast<double>(std::time(nullptr)) + 60);
  const int more = dup(0);
  EXPECT_EQ(std::stod(Metrics("demo").Text().substr(
                Metrics("demo").Text().find("\nprocess_open_fds ") + 18)),
            open + 1);
  close(more);
}

TEST(Metrics, CountersOfANodeAreFollowedOverItsRestart) {
  Metrics metrics("demo");
  metrics.NodeUp(Replica(0), true);
  metrics.NodeStatus(Replica(10));
  metrics.NodeStatus(Replica(15));
  const std::string series = "coppice_prefix_cache_queries_total{replica=\"replica-0\"} ";
  EXPECT_THAT(metrics.Text(), HasSubstr(series + "15\n"));
  metrics.NodeStatus(Replica(4));  // a new process starts to count at 0
  EXPECT_THAT(metrics.Text(), HasSubstr(series + "19\n"));
  EXPECT_THAT(metrics.Text(),
              HasSubstr("coppice_kv_cache_usage_perc{replica=\"replica-0\"} 0.25\n"));
  EXPECT_THAT(metrics.Text(),
              HasSubstr("coppice_kv_blocks{replica=\"replica-0\",state=\"free\"} 70\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("reason=\"late\",replica=\"replica-0\"} 3\n"));
  EXPECT_THAT(metrics.Text(),
              HasSubstr("coppice_num_preemptions_total{replica=\"replica-0\"} 0\n"));
}

TEST(Metrics, ANodeThatComesBackIsNotCountedTwice) {
  Metrics metrics("demo");
  const auto queries = [&](Node node, uint64_t count) {
    node.status.mutable_counters()->set_prefix_cache_queries(count);
    metrics.NodeStatus(node);
    const std::string text = metrics.Text();
    const size_t at = text.find("coppice_prefix_cache_queries_total{replica=\"replica-0\"} ");
    return std::stod(text.substr(text.find("} ", at) + 2));
  };
  Node node = Replica(0);
  metrics.NodeUp(node, true);
  EXPECT_EQ(queries(node, 100), 100);
  metrics.NodeUp(node, false);  // its heartbeats stopped for a while
  metrics.NodeUp(node, true);
  EXPECT_EQ(queries(node, 150), 150);
  node.registration.mutable_ranks(0)->set_pid(2);  // another process takes the name
  metrics.NodeUp(node, false);
  metrics.NodeUp(node, true);
  EXPECT_EQ(queries(node, 200), 350);
}

// By role and kind, and by channel, over all nodes.
TEST(Metrics, BytesOfNodesAreAdded) {
  Metrics metrics("demo");
  EXPECT_THAT(metrics.Text(),
              HasSubstr("coppice_bytes_read_total{kind=\"kv\",role=\"draft\"} 0\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("coppice_wire_bytes_total{channel=\"control\"} 0\n"));
  const auto tell = [&](Node node, int times) {
    proto::NodeCounters* counters = node.status.mutable_counters();
    counters->set_weight_bytes_read(1000 * times);
    counters->set_kv_bytes_read(100 * times);
    counters->set_control_bytes(7 * times);
    counters->set_collective_bytes(5 * times);
    counters->set_state_bytes(11 * times);
    metrics.NodeStatus(node);
  };
  Node other = Replica(0), draft = Replica(0);
  other.id = "replica-1";
  draft.id = "draft-0";
  draft.registration.set_role(proto::DRAFT_NODE);
  tell(Replica(0), 1);
  tell(Replica(0), 3);
  tell(other, 1);
  tell(draft, 2);
  const std::string text = metrics.Text();
  const auto has = [&](const char* line) { EXPECT_THAT(text, HasSubstr(line)); };
  has("coppice_bytes_read_total{kind=\"weights\",role=\"target\"} 4000\n");
  has("coppice_bytes_read_total{kind=\"kv\",role=\"target\"} 400\n");
  has("coppice_bytes_read_total{kind=\"weights\",role=\"draft\"} 2000\n");
  has("coppice_bytes_read_total{kind=\"kv\",role=\"draft\"} 200\n");
  has("coppice_wire_bytes_total{channel=\"control\"} 42\n");
  has("coppice_wire_bytes_total{channel=\"collective\"} 20\n");
  has("coppice_draft_state_bytes_total{replica=\"replica-0\"} 33\n");
  has("coppice_draft_state_bytes_total{replica=\"replica-1\"} 11\n");
}

TEST(Metrics, StepsOfANodeAreFollowed) {
  Metrics metrics("demo");
  Node node = Replica(0);
  metrics.NodeUp(node, true);
  proto::Histogram* rows = node.status.mutable_counters()->mutable_step_rows();
  for (int i = 0; i < 14; ++i) rows->add_counts(i == 2 ? 5 : 0);  // 5 steps of 3 or 4 rows
  rows->set_sum(18);
  metrics.NodeStatus(node);
  metrics.NodeStatus(node);
  rows->set_counts(3, 1);
  rows->set_sum(25);
  metrics.NodeStatus(node);
  rows->add_counts(7);  // bounds that the coordinator does not have
  (*node.status.mutable_counters()->mutable_step_seconds())["unheard of"] = *rows;
  metrics.NodeStatus(node);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, Not(HasSubstr("unheard of")));
  EXPECT_THAT(text, HasSubstr("coppice_iteration_tokens_count{replica=\"replica-0\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("coppice_iteration_tokens_sum{replica=\"replica-0\"} 25\n"));
  EXPECT_THAT(text,
              HasSubstr("coppice_iteration_tokens_bucket{replica=\"replica-0\",le=\"4\"} 5\n"));
}

// The series is there while the node measures, and goes on where it was.
TEST(Metrics, EnergyIsAbsentWhileItIsNotMeasuredAndNeverFalls) {
  Metrics metrics("demo");
  Node node = Replica(0);
  metrics.NodeUp(node, true);
  metrics.NodeStatus(node);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("energy_joules_total{")));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("request_energy_joules_count")));
  const std::string series = "coppice_energy_joules_total{node=\"replica-0\",source=\"rapl\"} ";
  const auto tell = [&](double joules) {
    node.status.set_energy_joules(joules);
    node.status.set_energy_source("rapl");
    metrics.NodeStatus(node);
  };
  tell(0);
  EXPECT_THAT(metrics.Text(), HasSubstr(series + "0\n"));
  tell(10);
  tell(12.5);
  EXPECT_THAT(metrics.Text(), HasSubstr(series + "12.5\n"));
  node.status.clear_energy_joules();
  metrics.NodeStatus(node);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("energy_joules_total{")));
  tell(14);
  EXPECT_THAT(metrics.Text(), HasSubstr(series + "14\n"));
  node.state = NodeState::kLost;
  metrics.NodeUp(node, false);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("energy_joules_total{")));
  node.state = NodeState::kReady;
  metrics.NodeUp(node, true);
  tell(15);  // the same process is back
  EXPECT_THAT(metrics.Text(), HasSubstr(series + "15\n"));
  tell(2);  // a new one
  EXPECT_THAT(metrics.Text(), HasSubstr(series + "17\n"));
}

TEST(Metrics, EveryFamilyHasHelpAndTypeAndCountersEndInTotal) {
  Metrics metrics("demo");
  metrics.NodeUp(Replica(0), true);
  metrics.NodeStatus(Replica(1));
  metrics.Http("completions", "BREW", 404, 0.1);
  std::string helped;
  for (const absl::string_view line : absl::StrSplit(metrics.Text(), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] != "#") continue;
    if (words[1] == "HELP") helped = words[2];
    if (words[1] != "TYPE") continue;
    EXPECT_EQ(words[2], helped);
    EXPECT_EQ(words[3] == "counter",
              words[2].size() > 6 && words[2].substr(words[2].size() - 6) == "_total")
        << line;
  }
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("BREW")));
}

}  // namespace
}  // namespace coppice::coordinator
