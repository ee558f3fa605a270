// Chooses the size of the next forest when a request leaves it to the server: the shape with the
// most expected layers per second. The expectation comes from what this replica has measured: the
// time of a pass by its rows, the time of a draft by its levels, how often a first layer of a given
// width is covered, and how much less often a deeper one. On a GPU the matrix products were measured
// before, so that a pass has an expected time from the first round on. The shape may change every round, because
// the output of the default methods does not depend on it (docs/algorithms.md 10.4).
// Thread-compatible: the engine thread owns it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "decoding/draft_size.h"
#include "kernels/backend.h"
#include "worker/drifting_cost.h"

namespace coppice::worker {

struct DraftShape {
  int width = 0;  // W_S nodes per layer; of a static tree, nodes of its first layer
  int depth = 0;  // gamma layers; 0 = no draft
};

struct SizerLimits {
  int beam_width = 1;         // W
  int roots = 1;              // rows that the sequence has besides its forest
  int plain_rows = 1;         // rows of a round without a forest
  int max_depth = 0;          // layers that the sequence can still use, or its own number
  int max_nodes = 0;          // of one forest: room in a pass
  int running = 1;            // sequences that share a pass
  decoding::DraftSize draft;  // what the request and its method prescribe
};

class ForestSizer {
 public:
  // products: what the matrix products of a pass take by its rows, ascending, where that is known
  // before any pass has run (Backend::RowCosts); its rows are the sizes that passes are padded to.
  explicit ForestSizer(std::vector<kernels::RowCost> products = {})
      : products_(std::move(products)) {}

  // Without known products, the first rounds try a series of shapes, from 2 W x 4 (4 x 4 for W = 1)
  // downwards. Then, until kYoung rounds, one in kHopeEvery takes the shape that would be best if
  // drafts were better than they seem: a wrong first impression does not last. One round in
  // kExploreEvery explores at all times.
  DraftShape Choose(absl::string_view method, const SizerLimits& limits);
  // The shape, cut to the depth that the limits allow. No draft when they allow no layer.
  static DraftShape Clip(DraftShape shape, const SizerLimits& limits);

  // A pass of `rows` rows took `seconds`.
  void RecordPass(int rows, double seconds);
  // The pass of a forest of `shape` decided `layers` layers (1: none of the forest was covered).
  void RecordRound(absl::string_view method, int beam_width, DraftShape shape, int layers);
  // A draft of `shape` arrived `seconds` after its request.
  void RecordDraft(DraftShape shape, double seconds);

  // Estimated probability that a first layer of this width is covered.
  double Coverage(absl::string_view method, int beam_width, int width) const;

  static constexpr int kExploreEvery = 24;
  static constexpr int kYoung = 240;
  static constexpr int kHopeEvery = 6;

 private:
  struct Cover {  // layers, decayed
    double trials = 0, missed = 0;
    // Layers below the first. Their parents are drafts too.
    double deep_trials = 0, deep_missed = 0;
  };
  struct Learned {
    // First layers, over all widths: how many were missed, and how many the prior curve predicts.
    double missed = 0, expected_missed = 0;
    std::map<int, Cover> by_width;
    std::map<std::pair<int, int>, uint64_t> used;  // shape -> rounds
    uint64_t rounds = 0;
    uint64_t Used(DraftShape shape) const {
      const auto found = used.find({shape.width, shape.depth});
      return found == used.end() ? 0 : found->second;
    }
  };
  // The data of a choice. Gathered once, since a choice compares about sixty shapes.
  struct Measured {
    int size;
    double seconds;
    // The least seconds of this size and all larger ones, and the size that has them. More rows
    // never take less time, so a size that seems slower than a larger one was disturbed.
    double least;
    int least_size;
  };
  struct Costs {
    std::vector<Measured> pass;                   // ascending, by bucket of rows
    std::map<int, std::vector<Measured>> drafts;  // by width: ascending, by levels
    const std::vector<kernels::RowCost>& products;
    double Pass(int rows) const;
    double Draft(DraftShape shape) const;

   private:
    double Products(int rows) const;
    double KnownPass(int rows) const;
  };
  static std::vector<Measured> List(const DriftingCost& cost);
  Costs CostsNow() const;
  // How likely misses are before any is seen, relative to what all widths together say.
  enum class Mood { kSober, kHopeful };
  static double Coverage(const Learned& learned, int beam_width, int width,
                         Mood mood = Mood::kSober);
  // Probability that a layer below the first is covered when those above it were.
  static double DeepCoverage(const Learned& learned, int width, double first);
  struct Covered {
    double first = 0, deep = 0;  // Coverage, DeepCoverage
  };
  // Layers per second of each candidate; 0 where it must wait.
  std::vector<double> Rates(absl::Span<const DraftShape> candidates, const Costs& costs,
                            const Learned& learned, const SizerLimits& limits, Mood mood) const;
  static double LayersPerSecond(const Costs& costs, Covered covered, const SizerLimits& limits,
                                DraftShape shape);

  const std::vector<kernels::RowCost> products_;
  std::map<std::pair<std::string, int>, Learned> learned_;  // method, W
  DriftingCost pass_;                                       // by bucket of rows
  DriftingCost draft_;  // the wait for a draft, by width and levels
};

}  // namespace coppice::worker
