#include "coordinator/cluster/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "absl/strings/str_replace.h"
#include "coordinator/cluster/metrics.h"
#include "tests/coordinator/cluster/open_metrics.h"
#include "tests/coordinator/fake_worker.h"

namespace coppice::coordinator {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Exposition, ClientsGetTheFormatThatTheyPrefer) {
  const auto asks = [](const char* accept) {
    return ChooseFormat(accept) == MetricsFormat::kOpenMetrics;
  };
  EXPECT_FALSE(asks(""));
  EXPECT_FALSE(asks("*/*"));
  EXPECT_FALSE(asks("application/json"));
  EXPECT_FALSE(asks("text/plain;version=0.0.4"));
  EXPECT_TRUE(asks("application/openmetrics-text"));
  EXPECT_TRUE(asks(" Application/OpenMetrics-Text ; Version=\"1.0.0\" ; charset=utf-8"));
  EXPECT_FALSE(asks("application/openmetrics-text; version=0.0.1"));
  EXPECT_FALSE(asks("application/openmetrics-text;version=1.0.0;q=0"));
  EXPECT_FALSE(asks("application/openmetrics-text;q=abc"));
  EXPECT_TRUE(asks("application/openmetrics-text;q=0.5, text/plain;q=0.5, */*;q=1"));
  EXPECT_FALSE(asks("application/openmetrics-text;q=0.4, text/plain;q=0.5"));
  EXPECT_FALSE(asks("text/plain, application/openmetrics-text;q=0.9"));
  // What Prometheus 2.5x and 3 send.
  EXPECT_TRUE(
      asks("application/openmetrics-text;version=1.0.0;q=0.5,"
           "application/openmetrics-text;version=0.0.1;q=0.4,"
           "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"));
  EXPECT_TRUE(
      asks("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
           "application/openmetrics-text;version=0.0.1;q=0.5,"
           "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
           "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"));
}

MetricFamily Family(const char* name, MetricType type, std::vector<ClientMetric::Label> labels) {
  MetricFamily family{name, "Says \"so\".\nTwice \\.", type, {}};
  family.metric.emplace_back().label = std::move(labels);
  return family;
}

TEST(Exposition, OpenMetricsByTheLetter) {
  MetricFamily counter = Family("a_seconds_total", MetricType::Counter, {{"x", "q\"\\\n"}});
  counter.metric[0].counter.value = 0.1;
  MetricFamily histogram = Family("b_bytes", MetricType::Histogram, {});
  histogram.metric[0].histogram = {3, 1e21, {{1, 0.5}, {2, 2}, {2, 100000}}};
  MetricFamily info = Family("c_info", MetricType::Gauge, {{"v", "1"}});
  info.metric[0].gauge.value = 1;
  MetricFamily gauge = Family("vllm:d", MetricType::Gauge, {});
  gauge.metric[0].gauge.value = -3;
  EXPECT_EQ(Expose({counter, histogram, info, gauge}, MetricsFormat::kOpenMetrics),
            R"(# TYPE a_seconds counter
# UNIT a_seconds seconds
# HELP a_seconds Says \"so\".\nTwice \\.
a_seconds_total{x="q\"\\\n"} 0.1
# TYPE b_bytes histogram
# UNIT b_bytes bytes
# HELP b_bytes Says \"so\".\nTwice \\.
b_bytes_bucket{le="0.5"} 1
b_bytes_bucket{le="2.0"} 2
b_bytes_bucket{le="100000.0"} 2
b_bytes_bucket{le="+Inf"} 3
b_bytes_count 3
b_bytes_sum 1e+21
# TYPE c info
# HELP c Says \"so\".\nTwice \\.
c_info{v="1"} 1
# TYPE vllm:d gauge
# HELP vllm:d Says \"so\".\nTwice \\.
vllm:d -3
# EOF
)");
}

std::string AllMetrics(bool vllm_names, MetricsFormat format) {
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
  return metrics.Text(format);
}

TEST(Exposition, AllMetricsAreGoodOpenMetrics) {
  const auto families = ReadOpenMetrics(AllMetrics(true, MetricsFormat::kOpenMetrics));
  EXPECT_GT(families.size(), 70u);
  for (const auto& [name, family] : families) {
    EXPECT_NE(family.help, "") << name;
    EXPECT_EQ(family.unit, name.ends_with("_seconds")  ? "seconds"
                           : name.ends_with("_bytes")  ? "bytes"
                           : name.ends_with("_joules") ? "joules"
                                                       : "")
        << name;
  }
  EXPECT_EQ(families.at("coppice_model").type, "info");
  EXPECT_EQ(families.at("coppice_energy_joules").samples[0].second, 2.5);
  EXPECT_EQ(families.at("coppice_inter_token_latency_seconds").samples.back().second, 0.03);
}

// The reader above notices what is wrong.
TEST(Exposition, BadOpenMetricsIsNoticed) {
  const std::string good = AllMetrics(true, MetricsFormat::kOpenMetrics);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"# EOF\n", ""},
           {"TYPE coppice_energy_joules counter", "TYPE coppice_energy_joules_total counter"},
           {"TYPE coppice_model info", "TYPE coppice_model_info gauge"},
           {"UNIT coppice_energy_joules joules", "UNIT coppice_energy_joules seconds"},
           {"le=\"1.0\"", "le=\"1\""},
           {"le=\"+Inf\"", "le=\"1001.0\""},
           {"demo \\\"1", "demo \"1"},
           {"# TYPE coppice_http_connections", "# TYPE coppice_kv_blocks"}}) {
    ASSERT_THAT(good, HasSubstr(from));
    EXPECT_THROW(ReadOpenMetrics(absl::StrReplaceAll(good, {{from, to}})), std::runtime_error)
        << from;
  }
}

// Under both names are the same series with the same values.
TEST(Exposition, VllmNamesAreCopies) {
  const auto families = ReadOpenMetrics(AllMetrics(true, MetricsFormat::kOpenMetrics));
  int copies = 0;
  for (const auto& [name, family] : families) {
    if (!name.starts_with("vllm:")) continue;
    ++copies;
    const OpenMetricsFamily& own = families.at("coppice_" + name.substr(5));
    EXPECT_EQ(family.type, own.type) << name;
    EXPECT_EQ(family.help, own.help) << name;
    ASSERT_EQ(family.samples.size(), own.samples.size()) << name;
    for (size_t i = 0; i < own.samples.size(); ++i) {
      EXPECT_EQ(family.samples[i].first.substr(5), own.samples[i].first.substr(8));
      EXPECT_EQ(family.samples[i].second, own.samples[i].second) << own.samples[i].first;
    }
  }
  EXPECT_EQ(copies, 24);
  EXPECT_THAT(AllMetrics(true, MetricsFormat::kText), HasSubstr("\nvllm:generation_tokens_total{"));
  EXPECT_THAT(AllMetrics(false, MetricsFormat::kText), Not(HasSubstr("vllm:")));
}

}  // namespace
}  // namespace coppice::coordinator
