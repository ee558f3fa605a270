#include "lab/bench/cuda/predicted_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "lab/bench/cuda/draft_plan.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/llama_model.h"
#include "lab/bench/cuda/llama_shape.h"
#include "lab/bench/cuda/predicted_drafts.h"
#include "lab/bench/cuda/predicted_step.h"

namespace coppice::bench {
namespace {

constexpr double kCoverages[] = {0.757, 0.82, 0.87};
constexpr int kRequests[] = {1, 8, 64};
constexpr int kMostWidth = 7, kMostDepth = 8;
constexpr int kRoots = 2;  // distinct beams of four, plain steps too (1.4 to 2.5 were seen)
constexpr int kReadAgain =
    3;  // rows of an accepted path that a head on states reads again, at most
// A state goes from a pinned buffer into a request, into its message, is serialised, parsed, goes into
// a request again, into the plan and into the pinned block of that.
constexpr int kStateCopies = 7;
constexpr int kMostRows = kRoots + kMostWidth * kMostDepth;

struct Shape {
  int width = 0, depth = 0;
  int rows() const { return kRoots + width * depth; }
};
// Rows that come again after a round of this depth, of each request.
int AgainAfter(int depth) { return std::min(kReadAgain, depth); }

// The work of everything at so many requests and so much context.
struct Cell {
  int requests = 0, context = 0;
  PredictedStep plain;
  std::map<int, PredictedStep> verify;  // by rows of a request
  // Of a target that keeps states: the same steps, and reading those that a head lacks.
  PredictedStep plain_with_states;
  std::map<int, PredictedStep> verify_with_states;
  std::map<int, PredictedStep> states;  // by rows that come again
};

// Gains of a draft over plain steps, as layers a second. Both ends of an interval take the same
// assumptions for both.
struct Gain {
  Interval times;
  Shape shape;
  PredictedStep round;
};

class Table {
 public:
  Table(const DeviceModel& device, const TableOptions& options, kernels::cuda::DeviceStream* stream)
      : device_(device), options_(options), stream_(stream) {}

  absl::Status Print() {
    for (const bool keeps_states : {false, true}) {
      target_.reset();  // a device does not hold both
      COPPICE_ASSIGN_OR_RETURN(
          target_, Model(kTarget, kRequests[2] * kMostRows,
                         ForestPlan(kRequests[2], kContexts[1], kMostRows).blocks, keeps_states));
      for (const int requests : kRequests) {
        for (const int context : kContexts)
          COPPICE_RETURN_IF_ERROR(
              PredictTarget(keeps_states, &cells_[{requests, context}], requests, context));
      }
    }
    for (const PredictedDraft& draft : PredictedDrafts()) {
      if (models_.count(Key(draft)) > 0) continue;
      COPPICE_ASSIGN_OR_RETURN(
          models_[Key(draft)],
          Model(draft.shape, kRequests[2] * kMostRows,
                DraftForests(DraftShapeOf(draft, kRequests[2], kContexts[1], kMostWidth)).blocks));
    }
    PrintAssumptions();
    for (const int requests : kRequests) {
      for (const int context : kContexts) COPPICE_RETURN_IF_ERROR(PrintCell(requests, context));
    }
    return PrintGoals();
  }

 private:
  static int Key(const PredictedDraft& draft) {
    return draft.shape.layers * 1000000 + draft.shape.head_rows();
  }
  static DraftShape DraftShapeOf(const PredictedDraft& draft, int requests, int context,
                                 int width) {
    DraftShape shape;
    shape.requests = requests;
    shape.context = context;
    shape.roots = kRoots;
    shape.width = width;
    shape.depth = kMostDepth;
    if (draft.shape.takes_states) {
      shape.state_columns = draft.shape.hidden;
      shape.again = kReadAgain;
    }
    return shape;
  }

  absl::StatusOr<std::unique_ptr<LlamaModel>> Model(const ModelShape& shape, int max_rows,
                                                    int64_t blocks, bool keeps_states = false) {
    LlamaOptions options;
    options.max_rows = max_rows;
    options.blocks = blocks;
    options.shape = shape;
    options.overlap_launches = options_.overlap;
    options.tuning_cache = options_.tuning_cache;
    options.keeps_states = keeps_states;
    return LlamaModel::Create(options, stream_);
  }

  void PrintAssumptions() const {
    const auto range = [](double low, double high, int digits) {
      return absl::StrFormat("%.*f-%.*f", digits, low, digits, high);
    };
    const Ceilings &a = device_.optimistic, &b = device_.pessimistic;
    absl::PrintF(
        "%s: reads %s TB/s, %s TFLOP/s (mma.sync %s), gaps %s us (overlapped %s), a load in a "
        "chain %s us, hand-over to the copy engine %s us, host %s us a round trip; launches %s. "
        "Nothing is "
        "measured.\n",
        device_.name, range(b.bandwidth / 1e12, a.bandwidth / 1e12, 1),
        range(b.flops / 1e12, a.flops / 1e12, 0), range(b.mma_flops / 1e12, a.mma_flops / 1e12, 0),
        range(a.gap_us, b.gap_us, 1), range(a.overlapped_gap_us, b.overlapped_gap_us, 1),
        range(a.load_us, b.load_us, 2), range(a.handoff_us, b.handoff_us, 0),
        range(a.host_us, b.host_us, 0), options_.overlap ? "overlap" : "do not overlap");
  }

  absl::StatusOr<PredictedStep> Step(int requests, int context, int rows) {
    StepPlan plan = ForestPlan(requests, context, rows).plan;
    NeedDraws(kBeams, &plan);
    return PredictStep(plan, device_, target_.get());
  }

  absl::Status PredictTarget(bool keeps_states, Cell* cell, int requests, int context) {
    cell->requests = requests;
    cell->context = context;
    auto& verify = keeps_states ? cell->verify_with_states : cell->verify;
    COPPICE_ASSIGN_OR_RETURN((keeps_states ? cell->plain_with_states : cell->plain),
                             Step(requests, context, kRoots));
    for (int width = 2; width <= kMostWidth; ++width) {
      for (int depth = 1; depth <= kMostDepth; ++depth) {
        const int rows = Shape{width, depth}.rows();
        if (verify.count(rows) > 0) continue;
        COPPICE_ASSIGN_OR_RETURN(verify[rows], Step(requests, context, rows));
      }
    }
    if (!keeps_states) return absl::OkStatus();
    for (int again = 1; again <= kReadAgain; ++again) {
      COPPICE_ASSIGN_OR_RETURN(cell->states[again], ReadStates(requests, again + kRoots));
    }
    return absl::OkStatus();
  }

  // Reads so many states of each request by a call of its own, and takes them to the draft's plan.
  absl::StatusOr<PredictedStep> ReadStates(int requests, int states) {
    COPPICE_ASSIGN_OR_RETURN(const Work read, CountStates(states, target_.get()));
    const PredictedStep one = Predict(read, device_, /*round_trips=*/0);
    PredictedStep all;
    for (int request = 0; request < requests; ++request) all.Add(one);
    const double bytes = kStateCopies * static_cast<double>(all.bytes_down);
    const Interval ms = {1e3 * bytes / device_.optimistic.copy_bandwidth,
                         1e3 * bytes / device_.pessimistic.copy_bandwidth};
    all.host += ms;
    all.causes["copies of states"] += ms;
    return all;
  }

  // Work of the draft's forests of all levels, by width.
  absl::StatusOr<Work> Forests(const PredictedDraft& draft, const Cell& cell, int width,
                               int again) {
    DraftShape shape = DraftShapeOf(draft, cell.requests, cell.context, width);
    if (draft.shape.takes_states) shape.again = again;
    const BenchForests forests = DraftForests(shape);
    COPPICE_ASSIGN_OR_RETURN(Work work, CountForests(forests.plan, models_[Key(draft)].get()));
    return WithFormat(std::move(work), draft.shape, draft.format);
  }

  // The pass of the last of two levels of seven rows.
  absl::StatusOr<PredictedStep> PassOfSeven(const PredictedDraft& draft) {
    DraftShape shape = DraftShapeOf(draft, 1, kContexts[0], kMostWidth);
    shape.depth = 2;
    COPPICE_ASSIGN_OR_RETURN(
        Work work, CountStep(DraftForests(shape).plan.levels.back(), models_[Key(draft)].get()));
    return Predict(WithFormat(std::move(work), draft.shape, draft.format), device_,
                   /*round_trips=*/0);
  }

  // forests: by width and depth; empty: they cost nothing. states: those of a draft that takes states.
  static Gain Best(double p, const Cell& cell,
                   const std::map<std::pair<int, int>, PredictedStep>& forests, bool states) {
    Gain best;
    for (int width = 2; width <= kMostWidth; ++width) {
      for (int depth = 1; depth <= kMostDepth; ++depth) {
        const Shape shape = {width, depth};
        PredictedStep round = (states ? cell.verify_with_states : cell.verify).at(shape.rows());
        if (states) round.Add(cell.states.at(AgainAfter(depth)));
        if (!forests.empty()) round.Add(forests.at({width, depth}));
        const double layers = LayersOf(p, width, depth);
        const Interval plain = cell.plain.total_ms(), ms = round.total_ms();
        const double ends[] = {layers * plain.low / ms.low, layers * plain.high / ms.high};
        const Interval times = {std::min(ends[0], ends[1]), std::max(ends[0], ends[1])};
        if (times.middle() > best.times.middle()) best = {times, shape, std::move(round)};
      }
    }
    return best;
  }

  void PrintRow(const std::string& name, const std::string& pass, const Cell& cell,
                const std::map<std::pair<int, int>, PredictedStep>& forests, bool states) {
    absl::PrintF("| %s | %s |", name, pass);
    Gain shown;
    for (const double p : kCoverages) {
      const Gain gain = Best(p, cell, forests, states);
      absl::PrintF(" %s |", Text(gain.times));
      gains_[{name, cell.requests, cell.context, p}] = gain.times;
      if (p == kCoverages[1]) shown = gain;
    }
    absl::PrintF(" %d x %d | %s | %s |\n", shown.shape.width, shown.shape.depth,
                 Text(shown.round.total_ms()), shown.round.Largest(3));
  }

  absl::Status PrintCell(int requests, int context) {
    const Cell& cell = cells_.at({requests, context});
    absl::PrintF(
        "\n%d request(s) at %d tokens; a plain step of %d rows: %s ms (%s)\n\n"
        "| draft | pass of 7 rows ms | p = .757 | .82 | .87 | nodes x levels at .82 | round ms | "
        "of it |\n|---|---|---|---|---|---|---|---|\n",
        requests, context, requests * kRoots, Text(cell.plain.total_ms()), cell.plain.Largest(3));
    for (const PredictedDraft& draft : PredictedDrafts()) {
      std::map<std::pair<int, int>, PredictedStep> forests;
      for (int width = 2; width <= kMostWidth; ++width) {
        Work work;
        for (int depth = 1; depth <= kMostDepth; ++depth) {
          const int again = AgainAfter(depth);
          if (work.empty() || (draft.shape.takes_states && again > AgainAfter(depth - 1))) {
            COPPICE_ASSIGN_OR_RETURN(work, Forests(draft, cell, width, again));
          }
          forests[{width, depth}] = Predict(FirstLevels(work, depth), device_, 1);
        }
      }
      COPPICE_ASSIGN_OR_RETURN(const PredictedStep pass, PassOfSeven(draft));
      PrintRow(draft.name, Text(pass.device_ms()), cell, forests, draft.shape.takes_states);
    }
    PrintRow("free", "0", cell, {}, false);
    absl::PrintF("\nA target that keeps states: a plain step %s ms\n",
                 Text(cell.plain_with_states.total_ms()));
    for (const auto& [again, states] : cell.states) {
      absl::PrintF(
          "%d states for drafts, a call for each request: %s ms, of it copies of the host %s (%d "
          "launches, %d bytes down)\n",
          requests * (again + kRoots), Text(states.total_ms(), 3), Text(states.host, 3),
          states.launches, states.bytes_down);
    }
    return absl::OkStatus();
  }

  // value: low end, high end.
  static void PrintGoal(const std::string& what, bool at_least, double bound, const char* unit,
                        const Interval& value) {
    const double worst = at_least ? std::min(value.low, value.high) : value.high;
    const double best = at_least ? std::max(value.low, value.high) : value.low;
    const auto met = [&](double v) { return at_least ? v >= bound : v <= bound; };
    absl::PrintF("| %s | %s %.4g %s | %s | %s |\n", what, at_least ? "at least" : "at most", bound,
                 unit, Text(value),
                 met(worst)  ? "yes"
                 : met(best) ? "perhaps"
                             : "no");
  }

  absl::Status PrintGoals() {
    absl::PrintF("\n| goal | bound | predicted | met |\n|---|---|---|---|\n");
    StepPlan one = PlainPlan(kContexts[0]).plan;
    NeedEveryRow(&one);
    COPPICE_ASSIGN_OR_RETURN(const Work plain, CountStep(one, target_.get()));
    const double bytes = static_cast<double>(kTarget.weight_bytes());
    const Interval ms = Predict(plain, device_, /*round_trips=*/0).device_ms();
    const Interval share = {100 * bytes / device_.pessimistic.bandwidth / (ms.high * 1e-3),
                            100 * bytes / device_.optimistic.bandwidth / (ms.low * 1e-3)};
    PrintGoal("plain step, 1 request at 1k: weight bytes at the rate of reading", true, 85, "%",
              share);
    const double bounds[] = {1.0, 0.55, 0, 0.3, 0};
    const std::vector<PredictedDraft> drafts = PredictedDrafts();
    std::vector<PredictedStep> passes;
    for (size_t i = 0; i < drafts.size(); ++i) {
      COPPICE_ASSIGN_OR_RETURN(passes.emplace_back(), PassOfSeven(drafts[i]));
      if (bounds[i] == 0) continue;
      PrintGoal(absl::StrCat("pass of 7 rows, ", drafts[i].name), false, bounds[i], "ms",
                passes.back().device_ms());
    }
    COPPICE_ASSIGN_OR_RETURN(PredictedStep noisy, Step(8, kContexts[0], 32));
    Interval lists = noisy.kernels["candidate lists of pieces"].ms;
    lists += noisy.kernels["merge of candidate lists"].ms;
    PrintGoal("noisy lists of 256 rows, 4 slots", false, 0.4, "ms", lists);
    for (const auto& [requests, bound] : {std::pair(1, 3.0), std::pair(8, 2.3)}) {
      for (const size_t i : {size_t{3}, size_t{4}}) {
        PrintGoal(absl::StrCat(requests, " request(s) at 1k, ", drafts[i].name, ", p = .82"), true,
                  bound, "x", gains_.at({drafts[i].name, requests, kContexts[0], kCoverages[1]}));
      }
    }
    for (size_t i = 0; i < drafts.size() && options_.details; ++i) {
      absl::PrintF("\npass of 7 rows, %s: %s ms\n", drafts[i].name, Text(passes[i].device_ms(), 3));
      PrintKernels(passes[i]);
    }
    return absl::OkStatus();
  }

  struct GainKey {
    std::string draft;
    int requests = 0, context = 0;
    double p = 0;
    auto operator<=>(const GainKey&) const = default;
  };

  const DeviceModel device_;
  const TableOptions options_;
  kernels::cuda::DeviceStream* const stream_;
  std::unique_ptr<LlamaModel> target_;
  std::map<int, std::unique_ptr<LlamaModel>> models_;  // of drafts
  std::map<std::pair<int, int>, Cell> cells_;          // by requests and context
  std::map<GainKey, Interval> gains_;
};

}  // namespace

double CoverageOf(double p, int nodes) {
  return std::max(0.0, 1 - (1 - p) * std::pow(7.0 / nodes, 0.56));
}

double LayersOf(double p, int nodes, int depth) {
  const double covered = CoverageOf(p, nodes);
  double layers = 0, reached = 1;
  for (int level = 0; level <= depth; ++level, reached *= covered) layers += reached;
  return layers;
}

absl::Status PredictTable(const DeviceModel& device, const TableOptions& options,
                          kernels::cuda::DeviceStream* stream) {
  return Table(device, options, stream).Print();
}

}  // namespace coppice::bench
