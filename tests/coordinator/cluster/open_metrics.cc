#include "tests/coordinator/cluster/open_metrics.h"

#include <cmath>
#include <limits>
#include <regex>
#include <set>
#include <stdexcept>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace coppice::coordinator {
namespace {

[[noreturn]] void Refuse(absl::string_view why, absl::string_view line) {
  throw std::runtime_error(absl::StrCat(why, ": ", line));
}

class Reader {
 public:
  std::map<std::string, OpenMetricsFamily> Read(absl::string_view text) {
    if (!absl::EndsWith(text, "\n# EOF\n")) Refuse("does not end with # EOF", "");
    text.remove_suffix(7);
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      absl::StartsWith(line, "#") ? Metadata(std::string(line)) : Sample(std::string(line));
    }
    CheckBuckets("the end");
    return std::move(families_);
  }

 private:
  void Metadata(const std::string& line) {
    static const std::regex form(R"(# (TYPE|UNIT|HELP) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+))");
    std::smatch m;
    if (!std::regex_match(line, m, form)) Refuse("metadata", line);
    if (m[2] != name_) {
      CheckBuckets(line);
      if (m[1] != "TYPE" || families_.count(m[2]) > 0)
        Refuse("a family begins once, by TYPE", line);
      name_ = m[2];
    }
    OpenMetricsFamily& family = families_[name_];
    if (!family.samples.empty()) Refuse("metadata after samples", line);
    std::string& entry = m[1] == "TYPE" ? family.type : m[1] == "UNIT" ? family.unit : family.help;
    if (!entry.empty()) Refuse("metadata twice", line);
    entry = m[3];
    if (m[1] == "UNIT" && !absl::EndsWith(name_, "_" + entry)) Refuse("unit", line);
    static const std::regex escapes(R"((?:[^"\\]|\\[\\n"])*)");
    if (m[1] == "HELP" && !std::regex_match(entry, escapes)) Refuse("escapes", line);
  }

  void Sample(const std::string& line) {
    static const std::regex form(R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+))re");
    static const std::regex label(R"re(([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\[\\n"])*)"(,?))re");
    std::smatch m;
    if (!std::regex_match(line, m, form)) Refuse("sample", line);
    const std::string name = m[1], labels = m[2];
    if (name_.empty() || !absl::StartsWith(name, name_)) Refuse("outside its family", line);
    const std::string suffix = name.substr(name_.size());
    OpenMetricsFamily& family = families_.at(name_);
    static const std::map<std::string, std::set<std::string>> suffixes = {
        {"counter", {"_total"}},
        {"gauge", {""}},
        {"info", {"_info"}},
        {"histogram", {"_bucket", "_count", "_sum"}}};
    if (suffixes.count(family.type) == 0 || suffixes.at(family.type).count(suffix) == 0)
      Refuse("suffix", line);
    std::string le, others;
    auto at = labels.cbegin();
    for (std::smatch part; at != labels.cend(); at = part[0].second) {
      const auto whole = std::regex_constants::match_continuous;
      if (!std::regex_search(at, labels.cend(), part, label, whole) ||
          (part[3].length() == 0) != (part[0].second == labels.cend())) {
        Refuse("labels", line);
      }
      if (part[1] == "le") {
        le = part[2];
      } else {
        absl::StrAppend(&others, part.str(1), "=", part.str(2), ";");
      }
    }
    const double value = Float(m[3], line);
    if (!seen_.insert(absl::StrCat(name, "{", others, le, "}")).second) Refuse("twice", line);
    if ((suffix == "_bucket") == le.empty()) Refuse("le", line);
    if (family.type == "counter" && !(value >= 0)) Refuse("a counter below 0", line);
    if (family.type == "info" && value != 1) Refuse("an info that is not 1", line);
    if (suffix == "_bucket") {
      Bucket(others, le, value, line);
    } else if (suffix == "_count") {
      if (bucket_labels_ != others || value != bucket_count_ || !std::isinf(bucket_bound_))
        Refuse("a count that is not the bucket +Inf before it", line);
    }
    family.samples.emplace_back(m.str(1) + (labels.empty() ? "" : "{" + labels + "}"), value);
  }

  void Bucket(const std::string& labels, const std::string& le, double count,
              const std::string& line) {
    if (le != "+Inf" && le.find_first_of(".e") == std::string::npos)
      Refuse("a bound without a point", line);
    const double bound = Float(le, line);
    if (labels != bucket_labels_ || std::isinf(bucket_bound_)) {
      CheckBuckets(line);
      bucket_labels_ = labels;
    } else if (!(bound > bucket_bound_) || count < bucket_count_) {
      Refuse("buckets that do not ascend", line);
    }
    bucket_bound_ = bound;
    bucket_count_ = count;
  }
  // Between two histograms.
  void CheckBuckets(const std::string& line) {
    if (!std::isinf(bucket_bound_)) Refuse("no bucket +Inf before", line);
    bucket_labels_ = "none";
  }

  static double Float(const std::string& text, const std::string& line) {
    if (text == "+Inf") return std::numeric_limits<double>::infinity();
    static const std::regex form(R"(-?\d+(\.\d+)?(e[+-]\d+)?)");
    if (!std::regex_match(text, form)) Refuse("number", line);
    return std::stod(text);
  }

  std::map<std::string, OpenMetricsFamily> families_;
  std::string name_;  // of the family that is being read
  std::set<std::string> seen_;
  std::string bucket_labels_ = "none";
  double bucket_bound_ = std::numeric_limits<double>::infinity(), bucket_count_ = 0;
};

}  // namespace

std::map<std::string, OpenMetricsFamily> ReadOpenMetrics(absl::string_view text) {
  return Reader().Read(text);
}

}  // namespace coppice::coordinator
