// Chooses the size of the next forest when a request leaves it to the server: the shape with the
// most expected layers per second, from the measured cost of steps and drafts
// (worker/round_costs.h) and from how often layers are covered. Where the products of the device are
// known, all forests together keep a step left of the ridge. What these do not show, such as
// the cores and the time that draft nodes take from the target, is in the time that steps with
// drafts really take: while that is more than their layers are worth, drafts pause. The shape may
// change every round, because the output of the default methods does not depend on it
// (docs/algorithms.md 10.4). Thread-compatible: the engine thread owns it.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "decoding/draft_size.h"
#include "worker/round_costs.h"

namespace coppice::worker {

struct SizerLimits {
  int beam_width = 1;  // W
  int running = 1;     // sequences that share a step
  // Rows of all running sequences, with forests (besides their nodes) and without. The same for all
  // that choose in a step, so that they draft together or not at all.
  int roots = 1, plain_rows = 1;
  int max_depth = 0;          // layers that the sequence can still use, or its own limit
  int max_nodes = 0;          // nodes of one forest for which a step has room
  bool prepared = true;       // a draft node has the prompt; otherwise trials leave it out
  decoding::DraftSize draft;  // what the request and its method prescribe
};

// A step that has ended.
struct StepTimes {
  int rows = 0, prompt_rows = 0;    // all rows, and those of prompts
  int running = 1, plain_rows = 1;  // sequences that run, and their rows without drafts
  bool reading = false;             // draft nodes read prompts
  double seconds = 0;               // the forward pass and the decisions after it
  double since_s = 0;  // since the end of the step before, or since there has been work
};

class ForestSizer {
 public:
  DraftShape Choose(absl::string_view method, const SizerLimits& limits);
  // The shape, cut to the depth that the limits allow. No draft when they allow no layer.
  static DraftShape Clip(DraftShape shape, const SizerLimits& limits);
  // For drafts that know how many layers they may gain (worker/suffix_drafts.h): whether the sequence
  // may have one now. False in pauses and while steps without drafts are measured.
  bool Allows(absl::string_view method, const SizerLimits& limits);
  // It has one for its next round.
  void CountAsked() { ++rounds_.asked; }
  // Whether a draft node should read the prompt of a sequence: its request prescribes drafts, or
  // one would pay now, with as many beams as the last sequence like it had, or it is the sequence
  // that a trial takes. Ignores limits.roots and limits.plain_rows.
  bool WorthPreparing(absl::string_view method, SizerLimits limits);

  // A sequence has decided `layers` layers, with a draft of `shape` or without. Called for each
  // sequence of a step, before RecordStep. draft: SizerLimits::draft.
  void RecordRound(absl::string_view method, int beam_width, const decoding::DraftSize& draft,
                   DraftShape shape, int layers);
  void RecordStep(const StepTimes& step);
  RoundCosts* costs() { return &costs_; }
  const RoundCosts& costs() const { return costs_; }

 private:
  struct Misses {  // layers, decayed: those missed, and how many the prior curve predicts
    double seen = 0, expected = 0;
    void Add(bool missed, double expectation);
  };
  // Steps with drafts at one load. What they decided would have taken worth_s without drafts.
  struct Regime {
    double worth_s = 0, seconds = 0;  // decayed
    int steps = 0;                    // since the last pause
    double lost_s = 0;                // seconds - worth_s of these, not decayed
    double pause_s = 0, paused_until_s = 0;
    int plain_steps = 0, since_plain = 0;  // all steps without drafts; steps since the last one
  };
  struct Learned {
    Misses first, deep;             // first layers, and those below
    std::map<int, Regime> regimes;  // by load
    int beams = 1;                  // rows of a sequence without drafts
    // After many steps without drafts the best one is tried though it does not seem to pay, and
    // again after twice as many.
    int plain_steps = 0, trials = 0;  // since drafts have paid
    int trial_rounds = 0;             // drafts that the trial still has
    bool trial_taken = false;         // a sequence was prepared for this trial
  };
  struct Best {
    DraftShape shape;
    double gain = 0;  // its layers per second, relative to no draft
  };
  DraftShape Decide(const Learned& learned, const SizerLimits& limits) const;
  bool StaysPlain(const Learned& learned, int running) const;
  Best BestDraft(const Learned& learned, const SizerLimits& limits) const;
  static double Layers(const Learned& learned, int beam_width, DraftShape shape);
  void EndPlainStep(const StepTimes& step, bool alone, Learned* learned);
  // A step with drafts has ended. Whether those at its load are judged and worth their time.
  static bool HavePaid(double worth_s, double seconds, double now_s, Regime* regime);

  RoundCosts costs_;
  double now_s_ = 0;                                        // sum of StepTimes::since_s
  std::map<std::pair<std::string, int>, Learned> learned_;  // method, W
  struct Rounds {
    Learned* of = nullptr;  // of a sequence whose shape is not prescribed
    int all = 0, drafted = 0, layers = 0;
    int asked = 0;  // sequences that are to have a draft for their next round
  };
  Rounds rounds_;  // since the last RecordStep
  int asked_ = 0;  // Rounds::asked of the step before
};

}  // namespace coppice::worker
