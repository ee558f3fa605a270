// The target distribution of one sequence and how to speculate on it. The API validates it, the
// worker follows it. Every member is a row of decoding/parameter_table.cc; docs/parameters.md has
// the fields of a request that set it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/output_format.h"
#include "base/stop_text.h"
#include "base/types.h"
#include "plan/kv_storage.h"
#include "sampling/row_params.h"

namespace coppice::decoding {

struct MethodRow;

// Far above any limit in use. Keeps sizes that are computed from parameters small.
inline constexpr int kMostBeams = 1 << 16;
// The min_score that leaves out none.
inline constexpr double kEveryScore = -1e12;

// Section numbers are those of docs/algorithms.md.
struct DecodingParams : sampling::RowParams {
  // ---- The distribution of the output.
  // What verifies drafts (decoding/method.h). nullptr: the first method that serves the other
  // parameters (ResolveMethod).
  const MethodRow* method = nullptr;

  // Decodes without drafts, by the same method.
  bool plain = false;

  // W: beams alive at once. More beams cost rows of every step and KV. 1 unless kind has beams.
  int beam_width = 1;

  // W of layer 1, 2, ..., of which the last holds for all layers to come (8.3). beam_width is the
  // largest of them. Empty: beam_width in every layer.
  std::vector<int> width_schedule;

  // G of 8.2: groups of beam_width / G beams that choose one after the other. 1: no groups.
  int num_beam_groups = 1;

  // lambda of 8.2, nats: taken from the score of a token for each beam of the groups before that
  // chose it in the same layer.
  double diversity_penalty = 0;

  // Hypotheses returned, the best by score. At most beam_width, or the last of width_schedule.
  int num_hypotheses = 1;

  // The most tokens of a hypothesis, including the stop id. Until some
  // requests of its kind have ended, a sequence is expected to need KV for all of them.
  int max_tokens = 256;

  // Seed of every random choice of the sequence.
  uint64_t seed = 0;

  // alpha of 8: hypotheses are ranked by log-probability / length^alpha. Larger values favour long
  // ones.
  double length_penalty = 1.0;

  // Hypotheses whose score is below it are not returned (8.4).
  double min_score = kEveryScore;

  // When a search ends. true: when enough hypotheses have ended (policy FIRST of 8). false: when no
  // live beam can become one of the best (EXACT), which takes longer.
  bool stop_when_full = true;

  // beam_sampling: draws new beams in place of those that ended.
  bool refill = true;

  // beam_sampling: a path held by several beams counts once (3.3), not once for each.
  bool set_semantics = false;

  // Strings that end a hypothesis at the token that completes one in its text, not before
  // min_tokens tokens.
  std::vector<std::string> stop_strings;
  // Whether that text includes the special tokens that were generated.
  bool show_special_tokens = false;
  // Finds stop_strings. Not part of the request: set by the node that decodes it. nullptr: there
  // are none.
  std::shared_ptr<const StopText> stop_text;

  // The format that the text of a hypothesis has when a stop id ends it. Every token that cannot
  // lead there has probability 0. `format` says which tokens are allowed.
  FormatSpec format_spec;

  // ---- Drafts. With a lossless method they change the speed, not the distribution.

  // W_S: nodes or draws in a layer of a draft. 0: the server chooses it from measured costs, at
  // first AutoDraftWidth.
  int draft_width = 0;

  // gamma: layers of a draft. 0: the server chooses it, at first kAutoDraftDepth.
  int draft_depth = 0;

  // K: how many entries of a draft distribution are kept, the most likely ones. More entries give
  // better drafts and larger messages.
  int draft_top_k = 64;

  // ---- Options of single methods.

  // t of 5.3 (DSBD with dynamic width): the width of a layer is the largest that the draft fills
  // with at least this probability. 0: fixed width.
  double width_threshold = 0;

  // W_min of 5.3: the smallest width when the width is dynamic.
  int min_width = 1;

  // Tree methods: a static topology (decoding/topology.h) instead of width and depth. "": none.
  std::string draft_tree;

  // mjsd: width of the draft's beam search (6.2). mjgd: M, the width of the target's (6.1).
  int draft_beams = 4;

  // tau of 6.2, in [0, 1]. Smaller values accept more drafts and stray further from the target.
  double mjsd_threshold = 0.1;

  // tau1 of 6.3: drafting stops where the draft's largest probability is below it.
  double fallback_threshold = 0.5;

  // tau2 of 6.3, nats: the first draft with -log p above it, and all after it, are dropped. Smaller
  // values stay closer to the target.
  double rollback_threshold = 2;

  // g of 6.1: tokens that are chosen jointly.
  int joint_tokens = 4;
};

// The draft shape when the request leaves it open (draft_width or draft_depth 0): the first shape,
// and the largest depth.
int AutoDraftWidth(int beam_width);
inline constexpr int kAutoDraftDepth = 4;
inline constexpr int kMaxAutoDraftDepth = 6;

// Fills what depends on the prompt.
void SetPrompt(absl::Span<const TokenId> prompt, DecodingParams* params);

// True if the token ends its hypothesis.
bool IsStopId(absl::Span<const TokenId> stop_ids, TokenId token);
bool IsStopId(const DecodingParams& params, TokenId token);

// W of a layer; the first is layer 1.
int LayerWidth(const DecodingParams& params, int layer);
// The largest W of this layer and of those after it.
int WidestFrom(const DecodingParams& params, int layer);

// The most beams that can be alive at once; each is a row of a plain round.
int MostBeams(const DecodingParams& params);

// The most pages that a sequence can need (without windows: blocks): its longest hypothesis, the
// chains of its other beams if they never coalesce, one forest, and a partly filled block for each.
// What is not its prefix has all pages, and its prefix in a group with a window those of the window
// and of what a step adds to it. A sequence that could need more than a replica has is refused.
int64_t KvPagesBound(const DecodingParams& params, int64_t prompt_tokens, const KvStorage& storage);

}  // namespace coppice::decoding
