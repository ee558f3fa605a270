#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "absl/strings/str_replace.h"
#include "coordinator/cluster/metrics.h"
#include "tests/coordinator/cluster/text_format.h"
#include "tests/coordinator/fake_worker.h"

namespace coppice::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string AllMetrics(bool vllm_names) {
  Metrics metrics("demo \"1\"\\", vllm_names);
  Node node;
  node.id = "replica-0";
  node.registration = WorkerRegistration("replica-0");
  node.status.set_energy_joules(2.5);
  node.status.set_energy_source("rapl");
  metrics.NodeUp(node, true);
  metrics.NodeStatus(node);
  metrics.InterToken(0.03);
  metrics.Http("completions", "POST", 200, 0.5);
  return metrics.Text();
}

TEST(MetricsText, AllMetricsAreWellFormed) {
  const auto families = ReadTextFormat(AllMetrics(true));
  EXPECT_GT(families.size(), 65u);
  EXPECT_EQ(families.at("coppice_model_info").type, "gauge");
  EXPECT_EQ(families.at("coppice_energy_joules_total").type, "counter");
  EXPECT_EQ(families.at("coppice_energy_joules_total").samples[0].second, 2.5);
  const TextFamily& histogram = families.at("coppice_inter_token_latency_seconds");
  EXPECT_EQ(histogram.type, "histogram");
  EXPECT_EQ(families.at("process_cpu_seconds_total").type, "counter");
  EXPECT_EQ(families.at("process_open_fds").type, "gauge");
  EXPECT_EQ(histogram.samples[0].second, 1);     // _count
  EXPECT_EQ(histogram.samples[1].second, 0.03);  // _sum
}

// The reader above notices what is wrong.
TEST(MetricsText, BadTextIsNoticed) {
  const std::string good = AllMetrics(true);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"TYPE coppice_energy_joules_total counter", "TYPE coppice_energy_joules_total gauges"},
           {"coppice_energy_joules_total", "coppice_energy_joules"},
           {"# TYPE coppice_energy_joules_total counter\n", ""},
           {"# HELP coppice_energy_joules_total", "# HELP coppice_energy_total"},
           {"le=\"1\"", "le=\"1001\""},
           {"le=\"+Inf\"", "le=\"1001\""},
           {"coppice_inter_token_latency_seconds_count{model_name=\"demo \\\"1\\\"\\\\\"} 1",
            "coppice_inter_token_latency_seconds_count{model_name=\"demo \\\"1\\\"\\\\\"} 2"},
           {"demo \\\"1", "demo \"1"},
           {"# TYPE coppice_http_connections", "# TYPE coppice_kv_blocks"}}) {
    ASSERT_THAT(good, HasSubstr(from));
    EXPECT_THROW(ReadTextFormat(absl::StrReplaceAll(good, {{from, to}})), std::runtime_error)
        << from;
  }
}

// Under both names are the same series with the same values.
TEST(MetricsText, VllmNamesAreCopies) {
  const auto families = ReadTextFormat(AllMetrics(true));
  int copies = 0;
  for (const auto& [name, family] : families) {
    if (!name.starts_with("vllm:")) continue;
    ++copies;
    const TextFamily& own = families.at("coppice_" + name.substr(5));
    EXPECT_EQ(family.type, own.type) << name;
    EXPECT_EQ(family.help, own.help) << name;
    ASSERT_EQ(family.samples.size(), own.samples.size()) << name;
    for (size_t i = 0; i < own.samples.size(); ++i) {
      EXPECT_EQ(family.samples[i].first.substr(5), own.samples[i].first.substr(8));
      EXPECT_EQ(family.samples[i].second, own.samples[i].second) << own.samples[i].first;
    }
  }
  EXPECT_EQ(copies, 20);  // the other 4 have the label of a method, and none was used
  EXPECT_THAT(AllMetrics(true), HasSubstr("\nvllm:generation_tokens_total{"));
  EXPECT_THAT(AllMetrics(false), Not(HasSubstr("vllm:")));
}

}  // namespace
}  // namespace coppice::coordinator
