#include "coordinator/cluster/exposition.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace coppice::coordinator {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr const char* kUnits[] = {"seconds", "bytes", "joules"};

// One range of an Accept header.
struct MediaRange {
  std::string type;     // lower case
  std::string version;  // "" = none
  double quality = 1;
};

MediaRange ParseRange(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ';');
  MediaRange range;
  range.type = absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts[0]));
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parameter =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(parameter.first));
    absl::string_view value = absl::StripAsciiWhitespace(parameter.second);
    if (absl::ConsumePrefix(&value, "\"")) absl::ConsumeSuffix(&value, "\"");
    if (name == "version") range.version = std::string(value);
    if (name == "q" && (!absl::SimpleAtod(value, &range.quality) || !(range.quality <= 1)))
      range.quality = 0;
  }
  return range;
}

// Integers as such, others with the fewest digits that say them exactly.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return absl::StrCat(static_cast<int64_t>(value));
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  return std::string(digits, end.ptr);
}

// A bound is a name: always with a point, so that 1 and 1.0 are not two.
std::string Bound(double value) {
  const std::string number = Number(value);
  return number.find_first_not_of("-0123456789") == std::string::npos ? number + ".0" : number;
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

class OpenMetricsWriter {
 public:
  void Family(const MetricFamily& family) {
    const bool info = family.type == MetricType::Gauge && absl::EndsWith(family.name, "_info");
    absl::string_view name = family.name;
    if (family.type == MetricType::Counter) absl::ConsumeSuffix(&name, "_total");
    if (info) absl::ConsumeSuffix(&name, "_info");
    absl::StrAppend(&text_, "# TYPE ", name, " ", info ? "info" : TypeName(family.type), "\n");
    for (const char* unit : kUnits) {
      if (absl::EndsWith(name, absl::StrCat("_", unit)))
        absl::StrAppend(&text_, "# UNIT ", name, " ", unit, "\n");
    }
    absl::StrAppend(&text_, "# HELP ", name, " ", Escaped(family.help), "\n");
    for (const ClientMetric& metric : family.metric) Metric(family.type, name, metric, info);
  }
  std::string End() { return std::move(text_) + "# EOF\n"; }

 private:
  static const char* TypeName(MetricType type) {
    switch (type) {
      case MetricType::Counter:
        return "counter";
      case MetricType::Gauge:
        return "gauge";
      case MetricType::Histogram:
        return "histogram";
      default:
        return "unknown";
    }
  }

  void Metric(MetricType type, absl::string_view name, const ClientMetric& metric, bool info) {
    switch (type) {
      case MetricType::Counter:
        return Sample(name, "_total", metric, "", Number(metric.counter.value));
      case MetricType::Gauge:
        return Sample(name, info ? "_info" : "", metric, "", Number(metric.gauge.value));
      case MetricType::Histogram:
        return Histogram(name, metric);
      default:
        return Sample(name, "", metric, "", Number(metric.untyped.value));
    }
  }

  // The last bucket is that of +Inf, which the client library may leave out.
  void Histogram(absl::string_view name, const ClientMetric& metric) {
    const ClientMetric::Histogram& histogram = metric.histogram;
    bool whole = false;
    for (const ClientMetric::Bucket& bucket : histogram.bucket) {
      Sample(name, "_bucket", metric, Bound(bucket.upper_bound),
             absl::StrCat(bucket.cumulative_count));
      whole = whole || std::isinf(bucket.upper_bound);
    }
    if (!whole) Sample(name, "_bucket", metric, "+Inf", absl::StrCat(histogram.sample_count));
    Sample(name, "_count", metric, "", absl::StrCat(histogram.sample_count));
    Sample(name, "_sum", metric, "", Number(histogram.sample_sum));
  }

  // le: "" = none.
  void Sample(absl::string_view name, const char* suffix, const ClientMetric& metric,
              const std::string& le, const std::string& value) {
    absl::StrAppend(&text_, name, suffix);
    const char* separator = "{";
    const auto add = [&](const std::string& label, const std::string& of) {
      absl::StrAppend(&text_, separator, label, "=\"", Escaped(of), "\"");
      separator = ",";
    };
    for (const ClientMetric::Label& label : metric.label) add(label.name, label.value);
    if (!le.empty()) add("le", le);
    absl::StrAppend(&text_, *separator == ',' ? "} " : " ", value, "\n");
  }

  std::string text_;
};

}  // namespace

const char* ContentType(MetricsFormat format) {
  return format == MetricsFormat::kText
             ? "text/plain; version=0.0.4; charset=utf-8"
             : "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

MetricsFormat ChooseFormat(absl::string_view accept) {
  double text = 0, open = 0;
  for (const absl::string_view part : absl::StrSplit(accept, ',')) {
    const MediaRange range = ParseRange(part);
    if (range.type == "text/plain") text = std::max(text, range.quality);
    if (range.type == "application/openmetrics-text" &&
        (range.version.empty() || range.version == "1.0.0")) {
      open = std::max(open, range.quality);
    }
  }
  return open > 0 && open >= text ? MetricsFormat::kOpenMetrics : MetricsFormat::kText;
}

std::string Expose(const std::vector<MetricFamily>& families, MetricsFormat format) {
  if (format == MetricsFormat::kText) return prometheus::TextSerializer().Serialize(families);
  OpenMetricsWriter writer;
  for (const MetricFamily& family : families) writer.Family(family);
  return writer.End();
}

}  // namespace coppice::coordinator
