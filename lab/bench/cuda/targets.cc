#include "lab/bench/cuda/targets.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lab/bench/cuda/llama_shape.h"
#include "lab/bench/cuda/report.h"

namespace coppice::bench {
namespace {

// The value of a field of a line that Report wrote: names have no quotes.
std::optional<std::string> Field(const std::string& line, const std::string& name) {
  const std::string key = absl::StrCat("\"", name, "\":");
  const size_t at = line.find(key);
  if (at == std::string::npos) return std::nullopt;
  size_t begin = at + key.size();
  const bool quoted = line[begin] == '"';
  begin += quoted ? 1 : 0;
  const size_t end = line.find_first_of(quoted ? "\"" : ",}", begin);
  if (end == std::string::npos) return std::nullopt;
  return line.substr(begin, end - begin);
}

double Number(const std::optional<std::string>& text) {
  double value = 0;
  return text.has_value() && absl::SimpleAtod(*text, &value) ? value : 0;
}

class Goals {
 public:
  explicit Goals(const Measured& measured) : measured_(measured) {}

  std::optional<double> Us(const std::string& name) const {
    const auto found = measured_.cases.find(name);
    if (found == measured_.cases.end()) return std::nullopt;
    return found->second.us;
  }
  // Bytes that must be moved in the time that was taken, of what reading alone moves, in percent.
  std::optional<double> Percent(const std::string& name, double bytes) const {
    const std::optional<double> us = Us(name);
    if (!us.has_value() || measured_.bandwidth == 0) return std::nullopt;
    return 100 * bytes / measured_.bandwidth / (*us * 1e-6);
  }
  std::optional<double> PercentOfFloor(const std::string& name) const {
    const auto found = measured_.cases.find(name);
    if (found == measured_.cases.end()) return std::nullopt;
    return Percent(name, found->second.bytes);
  }
  // a / b * times
  std::optional<double> Ratio(const std::string& a, const std::string& b, double times = 1) const {
    const std::optional<double> over = Us(a), under = Us(b);
    if (!over.has_value() || !under.has_value() || *under == 0) return std::nullopt;
    return *over / *under * times;
  }

 private:
  const Measured& measured_;
};

// Layers of a round by overlap: width 4, Gumbel coupling, 4 levels of 8 nodes.
struct SimulatedRound {
  double overlap, layers;
};
constexpr SimulatedRound kSimulated[] = {{0.38, 1.39}, {0.61, 2.56}, {0.70, 3.09}, {0.81, 3.79}};

// Between the simulated points, and beyond them, along straight lines.
double SimulatedLayers(double overlap) {
  const SimulatedRound* right = std::begin(kSimulated) + 1;
  while (right + 1 != std::end(kSimulated) && right->overlap < overlap) ++right;
  const SimulatedRound* left = right - 1;
  return left->layers + (right->layers - left->layers) * (overlap - left->overlap) /
                            (right->overlap - left->overlap);
}

}  // namespace

double LayersOf(const RoundShape& shape, double overlap) {
  const double of_one = (shape.layers - 1) / (SimulatedLayers(kShapeOverlap) - 1);
  return 1 + of_one * (SimulatedLayers(overlap) - 1);
}

absl::StatusOr<Measured> Measured::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  Measured measured;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::optional<std::string> part = Field(line, "part"), name = Field(line, "name");
    if (!part.has_value() || !name.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ", line ", number, ": neither a time nor a rate: ", line));
    }
    if (const double rate = Number(Field(line, kBandwidth)); rate > 0) measured.bandwidth = rate;
    if (const std::optional<std::string> us = Field(line, "us"); us.has_value())
      measured.cases[absl::StrCat(*part, ", ", *name)] = {Number(us), Number(Field(line, "bytes"))};
  }
  return measured;
}

std::vector<Goal> GoalsOf(const Measured& measured) {
  const Goals goals(measured);
  const std::string at = absl::StrCat(" at ", kContexts[0]);
  const std::string plain = absl::StrCat("step, plain, 1 rows", at);
  const std::string verify = absl::StrCat("step, forest, 34 rows", at);
  const std::string attention = absl::StrCat(", 8 x 32 rows over ", kContexts[1], " tokens, ");
  // By the best forest: a scheduler chooses it.
  const auto round = [&](int requests, int draft) {
    std::optional<double> best;
    for (const RoundShape& shape : kRoundShapes) {
      best = std::max(best, goals.Ratio(absl::StrCat("round, ", requests, " x plain"),
                                        absl::StrCat("round, ", requests, " x ", shape.rows(),
                                                     " rows, drafted by ", kDrafts[draft].name),
                                        LayersOf(shape, AssumedOverlap(draft))));
    }
    return best;
  };
  // As if drafts took no time.
  const auto verified = [&](int context) {
    const std::string name = absl::StrCat("round, ", kMostRequests, " x ");
    return goals.Ratio(absl::StrCat(name, "plain at ", context),
                       absl::StrCat(name, kNarrowShape.rows(), " rows at ", context),
                       LayersOf(kNarrowShape, kShapeOverlap));
  };
  const auto pass = [&](int draft) {
    return goals.Us(
        absl::StrCat("draft, ", kDrafts[draft].name, ", pass of 7 rows", at, ", of it the device"));
  };
  return {
      {"plain step, 1 request: weight bytes at the rate of reading", "%", true, 85,
       goals.Percent(plain, static_cast<double>(kTarget.weight_bytes()))},
      {"verify step of 34 rows, of the plain step", "x", false, 1.2, goals.Ratio(verify, plain)},
      {"attention, 8 requests, 8k: KV bytes at that rate", "%", true, 55,
       goals.PercentOfFloor(absl::StrCat("attention", attention, "one layer"))},
      {"the same by wgmma", "%", true, 80,
       goals.PercentOfFloor(absl::StrCat("wide", attention, "wgmma"))},
      {"1 request, 1B drafts, overlap .7: layers a second, of plain", "x", true, 2.5, round(1, 0)},
      {"1 request, 68M drafts, overlap .52", "x", true, 1.8, round(1, 1)},
      {"8 requests, 1B drafts", "x", true, 1.9, round(kManyRequests, 0)},
      {"8 requests, 68M drafts", "x", true, 1.3, round(kManyRequests, 1)},
      {"64 requests at 1k, free drafts of overlap .7", "x", true, 1.1, verified(kContexts[0])},
      {"64 requests at 8k, free drafts of overlap .7", "x", true, 1.5, verified(kContexts[1])},
      {"pass of a 68M draft", "us", false, 80, pass(2)},
      {"pass of a 1B draft", "us", false, 1000, pass(0)},
      {"host gap of a plain step, 1 request", "us", false, 300,
       goals.Us(absl::StrCat(plain, ", of it the host alone"))},
  };
}

}  // namespace coppice::bench
