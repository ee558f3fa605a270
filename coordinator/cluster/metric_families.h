// Which metrics exist (docs/api.md 5): their names, helps, buckets, and the series that exist from
// the start. cluster/metrics feeds them. Event-loop thread.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coppice::coordinator {

class MetricFamilies {
 public:
  using Labels = std::map<std::string, std::string>;

  // vllm_names: metrics with the meaning of a vLLM metric are also collected under its name.
  MetricFamilies(const std::string& model_name, bool vllm_names);

  // The series of a family; made if it does not exist. name: without "coppice_", of a family.
  prometheus::Counter& counter(const std::string& name, const Labels& labels) {
    return counters_.at(name)->Add(labels);
  }
  prometheus::Gauge& gauge(const std::string& name, const Labels& labels) {
    return gauges_.at(name)->Add(labels);
  }
  prometheus::Histogram& histogram(const std::string& name, const Labels& labels) {
    const auto& [family, buckets] = histograms_.at(name);
    return family->Add(labels, buckets);
  }
  void Remove(const std::string& counter_name, prometheus::Counter* series) {
    counters_.at(counter_name)->Remove(series);
  }
  // Removes the series of a node. References to them are invalid then.
  void RemoveNode(const std::string& id);
  // The labels with that of the model.
  Labels Model(Labels labels = {}) const {
    labels["model_name"] = model_name_;
    return labels;
  }
  // All families that have a series, with the values that they have now.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  using Buckets = prometheus::Histogram::BucketBoundaries;
  void DeclareCounter(const std::string& name, const std::string& help);
  void DeclareGauge(const std::string& name, const std::string& help);
  void DeclareHistogram(const std::string& name, const std::string& help, Buckets buckets);
  void Declare();
  void DeclareDecoding();
  void CreateKnownSeries();

  const std::string model_name_;
  const bool vllm_names_;
  prometheus::Registry registry_;
  // By name, so all metrics share one lookup of a series.
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counters_;
  std::map<std::string, prometheus::Family<prometheus::Gauge>*> gauges_;
  std::map<std::string, std::pair<prometheus::Family<prometheus::Histogram>*, Buckets>> histograms_;
};

}  // namespace coppice::coordinator
