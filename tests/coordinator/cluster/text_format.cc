#include "tests/coordinator/cluster/text_format.h"

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
  std::map<std::string, TextFamily> Read(absl::string_view text) {
    if (!absl::EndsWith(text, "\n")) Refuse("does not end with a line feed", "");
    text.remove_suffix(1);
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      absl::StartsWith(line, "#") ? Metadata(std::string(line)) : Sample(std::string(line));
    }
    EndFamily("the end");
    return std::move(families_);
  }

 private:
  void Metadata(const std::string& line) {
    static const std::regex form(R"(# (TYPE|HELP) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+))");
    std::smatch m;
    if (!std::regex_match(line, m, form)) Refuse("metadata", line);
    if (m[2] != name_) {
      EndFamily(line);
      if (families_.count(m[2]) > 0) Refuse("a family begins once", line);
      name_ = m[2];
    }
    TextFamily& family = families_[name_];
    if (!family.samples.empty()) Refuse("metadata after samples", line);
    std::string& entry = m[1] == "TYPE" ? family.type : family.help;
    if (!entry.empty()) Refuse("metadata twice", line);
    entry = m[3];
    if (family.type == "counter" && !absl::EndsWith(name_, "_total")) Refuse("no _total", line);
    static const std::regex escapes(R"((?:[^\\]|\\[\\n])*)");
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
    TextFamily& family = families_.at(name_);
    static const std::map<std::string, std::set<std::string>> suffixes = {
        {"counter", {""}}, {"gauge", {""}}, {"histogram", {"_bucket", "_count", "_sum"}}};
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
    if (suffix == "_bucket") Bucket(&histograms_[others], le, value, line);
    if (suffix == "_count") histograms_[others].total = value;
    family.samples.emplace_back(m.str(1) + (labels.empty() ? "" : "{" + labels + "}"), value);
  }

  // Of the family that is being read, one for each set of labels.
  struct Histogram {
    double bound = -std::numeric_limits<double>::infinity(), count = 0;  // of its last bucket
    double total = -1;                                                   // -1: no _count yet
  };

  static void Bucket(Histogram* histogram, const std::string& le, double count,
                     const std::string& line) {
    const double bound = Float(le, line);
    if (!(bound > histogram->bound) || count < histogram->count)
      Refuse("buckets that do not ascend", line);
    histogram->bound = bound;
    histogram->count = count;
  }

  void EndFamily(const std::string& line) {
    if (!name_.empty() && (families_.at(name_).type.empty() || families_.at(name_).help.empty()))
      Refuse("no TYPE or no HELP before", line);
    for (const auto& [labels, histogram] : histograms_) {
      if (!std::isinf(histogram.bound)) Refuse("no bucket +Inf before", line);
      if (histogram.total != histogram.count) Refuse("before: +Inf is not _count", line);
    }
    histograms_.clear();
  }

  static double Float(const std::string& text, const std::string& line) {
    if (text == "+Inf") return std::numeric_limits<double>::infinity();
    static const std::regex form(R"(-?\d+(\.\d+)?(e[+-]\d+)?)");
    if (!std::regex_match(text, form)) Refuse("number", line);
    return std::stod(text);
  }

  std::map<std::string, TextFamily> families_;
  std::string name_;  // of the family that is being read
  std::set<std::string> seen_;
  std::map<std::string, Histogram> histograms_;
};

}  // namespace

std::map<std::string, TextFamily> ReadTextFormat(absl::string_view text) {
  return Reader().Read(text);
}

}  // namespace coppice::coordinator
