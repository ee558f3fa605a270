// Chooses the size of the next forest when a request leaves it to the server: the shape with the
// most expected layers per second. The expectation comes from measurements of this replica: the
// cost of steps and drafts (worker/round_costs.h), how often a first layer of a given width is
// covered, and how much less often a deeper one. The shape may change every round, because the
// output of the default methods does not depend on it (docs/algorithms.md 10.4). Thread-compatible:
// the engine thread owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "decoding/draft_size.h"
#include "worker/round_costs.h"

namespace coppice::worker {

struct SizerLimits {
  int beam_width = 1;  // W
  int roots = 1;       // rows of the sequence besides its forest
  // Whether an earlier forest had rows of some of the current beams. Then the drafter is told the
  // certain outputs, and the next layer is easier to draft.
  bool informed = false;
  int plain_rows = 1;  // rows of a round without a forest
  int max_depth = 0;   // layers that the sequence can still use, or its own limit
  int max_nodes = 0;   // nodes of one forest for which a step has room
  int running = 1;     // sequences that share a step
  // Sums of `roots` and `plain_rows` over all running sequences, the same for all that choose in a
  // step, so that they draft together or not at all; 0: all have as many as this one.
  int all_roots = 0, all_plain_rows = 0;
  bool explores = true;       // false: takes a draft only if it is expected to pay
  decoding::DraftSize draft;  // what the request and its method prescribe
};

// Shapes for a round whose beginning is not known yet.
struct NextShapes {
  DraftShape uninformed, informed;
};

// A round with a draft.
struct DraftedRound {
  DraftShape shape;
  int layers = 1;         // decided layers; 1: no layer of the forest was covered
  bool informed = false;  // SizerLimits::informed
  int next_roots = 0;     // SizerLimits::roots of the next round if that is informed, else 0
};

class ForestSizer {
 public:
  explicit ForestSizer(std::vector<kernels::RowCost> products = {})  // of RoundCosts
      : costs_(std::move(products)) {}

  // Without known products, the first rounds try a series of shapes, from 2 W x 4 (4 x 4 for W = 1)
  // downwards. Then, until kYoung rounds, one in kHopeEvery takes the shape that would be best if
  // drafts were better than they seem: a wrong first impression does not last. Besides, one round
  // in kExploreEvery explores. While no draft pays, exploration becomes rarer, down to one round in
  // kRarest, which then always has a draft. A round is a step in which the method chose; for
  // exploration only those count in which a sequence chose that may explore.
  DraftShape Choose(absl::string_view method, const SizerLimits& limits);
  // Shapes for the round after this one. Ignores limits.roots and limits.informed.
  NextShapes ChooseAhead(absl::string_view method, SizerLimits limits);
  // The shape, cut to the depth that the limits allow. No draft when they allow no layer.
  static DraftShape Clip(DraftShape shape, const SizerLimits& limits);

  // Whether a draft node should read the prompt of a new sequence. False: its shape is left to the
  // server, and no draft would pay now, with as many beams as the last sequence like it had. When
  // none has explored for kRarest rounds, one is prepared all the same, to explore.
  bool WorthPreparing(absl::string_view method, SizerLimits limits);

  // A step with `rows` rows has ended. Sequences that choose in the same step explore together;
  // otherwise all would wait for each one's draft in turn. After a round without a draft, an
  // explored shape has two rounds: the first draft must catch up with the tokens decided meanwhile,
  // so its time is not typical.
  void RecordPass(int rows, double seconds);
  RoundCosts* costs() { return &costs_; }
  const RoundCosts& costs() const { return costs_; }
  void RecordRound(absl::string_view method, int beam_width, const DraftedRound& round);

  // Estimated probability that a first layer of this width is covered.
  double Coverage(absl::string_view method, int beam_width, int width, bool informed = false) const;

  static constexpr uint64_t kExploreEvery = 24;
  static constexpr uint64_t kRarest = 192;
  static constexpr int kYoung = 240;
  static constexpr int kHopeEvery = 6;

 private:
  struct Cover {  // layers, decayed
    double trials = 0, missed = 0;
    // Layers below the first. Their parents are drafts too.
    double deep_trials = 0, deep_missed = 0;
  };
  struct Informing {  // rounds with a draft, and those whose next round was informed; decayed
    double rounds = 0, informing = 0;
  };
  struct Covers {
    // First layers, over all widths: the number of missed ones, and the number that the prior curve
    // predicts.
    double missed = 0, expected_missed = 0;
    std::map<int, Cover> by_width;
    std::map<int, Informing> by_depth;
  };
  struct Learned {
    Covers of_uninformed, of_informed;
    // Mean of SizerLimits::roots of informed rounds; 0: there was no such round.
    double informed_roots = 0;
    const Covers& Of(bool informed) const { return informed ? of_informed : of_uninformed; }
    std::map<std::pair<int, int>, uint64_t> used;  // shape -> rounds
    uint64_t rounds = 0, step = 0;  // steps in which it has chosen, and the last of them
    // Steps in which a sequence that may explore chose, and the last of them.
    uint64_t able = 0, able_step = 0;
    // The next exploration comes when `able` is above explore_at; then the next after `gap` more.
    uint64_t explore_at = 0, gap = kExploreEvery;
    // Sequences that were prepared only to explore. The next may be when `rounds` is explorer_at.
    uint64_t explorers = 0, explorer_at = 0;
    int roots = 1, plain_rows = 1;       // values of the last sequence that chose
    std::optional<DraftShape> explored;  // the shape explored in this step
    uint64_t Used(DraftShape shape) const {
      const auto found = used.find({shape.width, shape.depth});
      return found == used.end() ? 0 : found->second;
    }
  };
  // How likely misses are before any is observed, relative to the estimate from all widths
  // together.
  enum class Mood { kSober, kHopeful };
  static double Coverage(const Covers& covers, int beam_width, int width, Mood mood = Mood::kSober);
  // Probability that a layer below the first is covered when those above it were. `uninformed`: the
  // probability for a first layer without any known rows, which later layers do not have either.
  static double DeepCoverage(const Covers& covers, int width, double uninformed);
  struct Covered {
    double first = 0, deep = 0;  // Coverage, DeepCoverage
  };
  struct Expected {
    double layers = 1, seconds = 0;
    double informs = 0;  // probability that the next round is informed
  };
  // The expected results of each candidate. No layers if it must wait.
  std::vector<Expected> Expect(absl::Span<const DraftShape> candidates, const Learned& learned,
                               const SizerLimits& limits, Mood mood) const;
  Expected Expect(Covered covered, const SizerLimits& limits, DraftShape shape) const;
  // Probability that a round with a draft of this depth informs the next one.
  static double Informs(const Covers& covers, int depth);
  // Layers that an informed round brings in the long run beyond an uninformed one.
  double WorthOfBeingInformed(absl::Span<const DraftShape> candidates, const Learned& learned,
                              SizerLimits limits) const;
  // Layers per second of each candidate, including the worth of informing the next round; 0 if it
  // must wait.
  std::vector<double> Rates(absl::Span<const DraftShape> candidates, const Learned& learned,
                            const SizerLimits& limits, Mood mood) const;
  static DraftShape Explore(absl::Span<const DraftShape> candidates, absl::Span<const double> rates,
                            int top, const Learned& learned);

  RoundCosts costs_;
  uint64_t step_ = 1;
  std::map<std::pair<std::string, int>, Learned> learned_;  // method, W
};

}  // namespace coppice::worker
