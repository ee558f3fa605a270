#include "worker/round_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

namespace coppice::worker {
namespace {

constexpr double kMessageGain = 0.1;
constexpr double kMessageShare = 0.3;  // share of messages in the wait for a draft of one level

// The key of a shape among the measured drafts.
constexpr int kDepths = 32;  // larger than any depth
int DraftKey(DraftShape shape) {
  return shape.width * kDepths + std::min(shape.depth, kDepths - 1);
}

// 1, 2, 3 to 4, 5 to 8, ... drafts at a time.
int Load(int drafting) { return std::bit_width(static_cast<unsigned>(std::max(1, drafting) - 1)); }

// Buckets of rows of a pass: the sizes of `products`, those that passes are padded to. Without them
// fine where it matters: 1, 2, 3, ... 8, then steps of a quarter.
int Bucket(const std::vector<kernels::RowCost>& products, int rows) {
  if (!products.empty()) {
    const auto size = std::lower_bound(products.begin(), products.end(), rows,
                                       [](const kernels::RowCost& p, int r) { return p.rows < r; });
    return static_cast<int>(size == products.end() ? products.back().rows : size->rows);
  }
  if (rows <= 8) return std::max(1, rows);
  const int step = 1 << std::max(0, static_cast<int>(std::log2(rows)) - 2);
  return rows / step * step;
}

}  // namespace

void RoundCosts::RecordPass(int rows, double seconds) {
  pass_.Record(Bucket(products_, rows), seconds);
  stale_ = true;
}

void RoundCosts::RecordDraft(DraftShape shape, double seconds, int drafting) {
  if (shape.depth <= 0) return;
  draft_.Record(DraftKey(shape), seconds, Load(drafting));
  stale_ = true;
}

void RoundCosts::RecordUnseenDraft(DraftShape shape, double seconds, double node_s, int drafting) {
  RecordDraft(shape, std::min(seconds, node_s + messages_s_.value_or(0)), drafting);
}

void RoundCosts::RecordMessages(double seconds) {
  seconds = std::max(0.0, seconds);
  const double before = messages_s_.value_or(seconds);
  messages_s_ = before + kMessageGain * (seconds - before);
}

void RoundCosts::Refresh() const {
  if (!std::exchange(stale_, false)) return;
  passes_.clear();
  for (const auto& [size, seconds] : pass_.Now()) passes_.push_back({size, seconds, seconds, size});
  for (size_t i = passes_.size(); i-- > 1;) {
    if (passes_[i].least >= passes_[i - 1].least) continue;
    passes_[i - 1].least = passes_[i].least;
    passes_[i - 1].least_size = passes_[i].least_size;
  }
  drafts_.clear();
  for (const auto& [size, seconds] : draft_.Now()) {
    const int depth = size % kDepths;
    drafts_[size / kDepths].push_back({depth, seconds, seconds, depth});
  }
}

// The products of a step. For more rows than are known: in proportion to the rows.
double RoundCosts::Products(int rows) const {
  const int bucket = Bucket(products_, rows);
  for (const kernels::RowCost& known : products_) {
    if (known.rows == bucket) return known.seconds * std::max(1.0, double(rows) / bucket);
  }
  return 0;
}

// Products and the rest, which comes from the measured sizes: interpolated between two of them,
// above all of them that of the largest, below all of them by their trend. If the trend is too
// optimistic, the size is chosen, measured, and then known.
double RoundCosts::KnownPass(int rows) const {
  const double expected = Products(rows);
  if (passes_.empty()) return expected;
  const auto rest = [&](const Measured& m) { return m.least - Products(m.size); };
  if (passes_.size() == 1) return expected + std::max(0.0, rest(passes_[0]));
  const int bucket = Bucket(products_, rows);
  auto above = std::lower_bound(passes_.begin() + 1, passes_.end() - 1, bucket,
                                [](const Measured& m, int size) { return m.size < size; });
  const double low = rest(*std::prev(above)), high = rest(*above);
  const double share =
      static_cast<double>(bucket - std::prev(above)->size) / (above->size - std::prev(above)->size);
  double between = low + std::min(share, 1.0) * (high - low);
  if (share < 0) between = std::min(between, low);
  return expected + std::max(0.0, between);
}

double RoundCosts::Pass(int rows) const {
  Refresh();
  if (!products_.empty()) return KnownPass(rows);
  if (passes_.empty()) return 0;
  const int bucket = Bucket(products_, rows);
  const auto from = std::lower_bound(passes_.begin(), passes_.end(), bucket,
                                     [](const Measured& m, int size) { return m.size < size; });
  if (from == passes_.end()) {
    // There are more rows than were measured. Assumes the worst: time proportional to the rows.
    return passes_.back().seconds * rows / passes_.back().size;
  }
  if (from->size == bucket || from == passes_.begin()) return from->least;
  const Measured& below = *std::prev(from);
  if (below.seconds >= from->least) return from->least;
  const double share = static_cast<double>(bucket - below.size) / (from->least_size - below.size);
  return below.seconds + share * (from->least - below.seconds);
}

int RoundCosts::RowsWithin(double seconds, int most) const {
  if (Pass(most) <= seconds) return most;
  const int least = products_.empty() ? passes_.front().size : 1;
  if (least > 1 && least <= most && Pass(least) > seconds) return least / 2;
  if (least == 1) seconds = std::max(seconds, 2 * Pass(1));
  int within = 1, beyond = most + 1;
  while (beyond - within > 1) {
    const int middle = (within + beyond) / 2;
    (Pass(middle) <= seconds ? within : beyond) = middle;
  }
  return within;
}

// Scales from the nearest measured depth. A part of every wait is for messages. The rest is
// proportional to the levels.
double RoundCosts::AtDepth(const std::vector<Measured>& measured, int depth) {
  auto nearest = std::lower_bound(measured.begin(), measured.end(), depth,
                                  [](const Measured& m, int size) { return m.size < size; });
  if (nearest == measured.end()) nearest = std::prev(nearest);
  const double levels = static_cast<double>(depth) / nearest->size;
  return nearest->seconds * (kMessageShare + (1 - kMessageShare) * levels);
}

double RoundCosts::Draft(DraftShape shape, int drafting) const {
  Refresh();
  if (shape.depth == 0 || drafts_.empty()) return 0;
  return DraftAlone(shape) * draft_.Slowdown(Load(drafting));
}

// Widths that were not measured lie on the line through two measured ones, the nearest on either
// side or beyond. A narrower draft takes at most as long, and at least half as long.
double RoundCosts::DraftAlone(DraftShape shape) const {
  auto above = drafts_.lower_bound(shape.width);
  if (above != drafts_.end() && above->first == shape.width)
    return AtDepth(above->second, shape.depth);
  if (drafts_.size() == 1) return AtDepth(drafts_.begin()->second, shape.depth);
  if (above == drafts_.begin()) ++above;
  if (above == drafts_.end()) --above;
  const auto below = std::prev(above);
  const double narrow = AtDepth(below->second, shape.depth);
  const double wide = std::max(narrow, AtDepth(above->second, shape.depth));
  const double share =
      static_cast<double>(shape.width - below->first) / (above->first - below->first);
  return std::max(narrow / 2, narrow + share * (wide - narrow));
}

double RoundCosts::Turn(int running, int rows, DraftShape shape) const {
  const double together = Draft(shape, running) + Pass(rows);
  if (running < 2 || shape.depth == 0) return together;
  const int half = (running + 1) / 2;
  const double pass = Pass((rows + 1) / 2);
  return std::min(together, pass + std::max(pass, Draft(shape, half)));
}

}  // namespace coppice::worker
