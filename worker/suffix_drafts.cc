#include "worker/suffix_drafts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "worker/sequence.h"

namespace coppice::worker {
namespace {

using decoding::SuffixSource;

constexpr int kDeepest = 15;                            // layers; the pass decides one more
constexpr double kForget = 0.99;                        // of tests, at each test
constexpr double kFade = 0.999;                         // of tests, at each round
constexpr double kPriorTests = 4;                       // weight of the assumed rates
constexpr double kForgetMisses = 0.97;                  // of a sequence's misses, at each test
constexpr double kPriorMisses = 2;                      // expected ones, before any is observed
constexpr double kFadeMisses = 0.995;                   // of a sequence's misses, at each round
constexpr double kFewestMisses = 0.1, kMostMisses = 4;  // factor of a sequence
constexpr double kPoorSource = 2;  // a source that misses so much more than others
constexpr int kPoorEvery = 16;     // is asked in one of so many rounds

// Assumed rates of a match's length.
constexpr double kPrior[] = {0.15, 0.3, 0.4, 0.5, 0.65, 0.8, 0.9};

double FactorOf(const SuffixState::Misses& misses) {
  return std::clamp((kPriorMisses + misses.seen) / (kPriorMisses + misses.expected), kFewestMisses,
                    kMostMisses);
}

int SourceIndex(SuffixSource source) { return static_cast<int>(source); }

}  // namespace

int SuffixAcceptance::Bucket(int length) {
  constexpr int kEnds[kLengths - 1] = {2, 3, 4, 6, 9, 15};
  return static_cast<int>(std::lower_bound(kEnds, kEnds + kLengths - 1, length) - kEnds);
}

double SuffixAcceptance::Of(SuffixSource source, int length) const {
  const int bucket = Bucket(length);
  const Tested& tested = tested_[SourceIndex(source)][bucket];
  return (kPriorTests * kPrior[bucket] + tested.taken) / (kPriorTests + tested.tests);
}

void SuffixAcceptance::Record(SuffixSource source, int length, double share, bool taken) {
  Tested& tested = tested_[SourceIndex(source)][Bucket(length)];
  tested.tests = kForget * tested.tests + share;
  tested.taken = std::min(tested.tests, kForget * tested.taken + taken);
}

void SuffixAcceptance::Fade() {
  for (auto& of_source : tested_) {
    for (Tested& tested : of_source) {
      tested.tests *= kFade;
      tested.taken *= kFade;
    }
  }
}

bool SuffixDrafts::Serve(const Sequence& sequence) const {
  return options_.on && sequence.draft.drafts &&
         decoding::TakesSuffixDrafts(*sequence.params.method);
}

std::string SuffixDrafts::SizedAs(const Sequence& sequence) {
  return absl::StrCat("suffix drafts of ", sequence.params.method->name);
}

SuffixAcceptance& SuffixDrafts::AcceptanceOf(const Sequence& sequence) {
  return acceptance_[{sequence.params.method, sequence.params.beam_width}];
}

bool SuffixDrafts::UpdateIndex(Sequence* sequence) {
  if (sequence->suffixes == nullptr) {
    if (index_bytes_ >= options_.index_bytes) return false;
    sequence->suffixes = std::make_unique<SuffixState>(sequence->prompt);
  }
  SuffixState& state = *sequence->suffixes;
  // An index that is left short is of use, too.
  if (index_bytes_ < options_.index_bytes) state.index.Add(sequence->decoder->paths());
  index_bytes_ += state.index.bytes() - state.bytes;
  state.bytes = state.index.bytes();
  return true;
}

decoding::DraftForest SuffixDrafts::Propose(Sequence* sequence, const SizerLimits& limits,
                                            bool windows,
                                            absl::FunctionRef<double(double, int)> gain) {
  if (!UpdateIndex(sequence)) {
    return decoding::DraftForest::Empty(static_cast<int>(sequence->decoder->roots().size()));
  }
  SuffixState& state = *sequence->suffixes;
  SuffixAcceptance& acceptance = AcceptanceOf(*sequence);
  acceptance.Fade();
  double factor[decoding::kSuffixSources];
  for (int source = 0; source < decoding::kSuffixSources; ++source) {
    SuffixState::Misses& misses = state.misses[source];
    misses.seen *= kFadeMisses;
    misses.expected *= kFadeMisses;
    factor[source] = FactorOf(misses);
  }
  const bool poor = factor[SourceIndex(SuffixSource::kCorpus)] >= kPoorSource;
  const bool asks = !poor || sequence->round % kPoorEvery == 0;

  decoding::SuffixLimits size;
  size.size = limits.draft;
  size.prescribed = limits.draft.chosen;
  size.width = limits.draft.width > 0 ? limits.draft.width
                                      : decoding::AutoDraftWidth(sequence->params.beam_width);
  size.depth = limits.draft.depth > 0 ? limits.draft.depth : decoding::kMaxAutoDraftDepth;
  // The KV that admission expects (KvPagesBound).
  size.nodes = std::min(limits.max_nodes, limits.draft.Nodes(size.width, size.depth));
  if (!size.prescribed && !windows) size.depth = kDeepest;
  size.depth = std::min(size.depth, limits.max_depth);
  const auto taken = [&](SuffixSource source, int length) {
    const double missed = 1 - acceptance.Of(source, length);
    return 1 - std::min(0.999, missed * factor[SourceIndex(source)]);
  };
  decoding::SuffixDraft draft = decoding::DraftFromSuffixes(
      *sequence->decoder, sequence->params,
      {sequence->prompt, &state.index, asks ? options_.corpus.get() : nullptr}, size, taken, gain);
  for (const decoding::SuffixNode& node : draft.nodes)
    if (node.source != SuffixSource::kKnown) ++counts_[node.source].drafted;
  state.nodes = std::move(draft.nodes);
  return std::move(draft.forest);
}

// A node was tested if the target took all above it and decided its layer.
void SuffixDrafts::Record(Sequence* sequence, const decoding::Verdict& verdict) {
  if (sequence->suffixes == nullptr) return;
  SuffixState& state = *sequence->suffixes;
  const std::vector<decoding::SuffixNode> nodes = std::exchange(state.nodes, {});
  const decoding::DraftForest& forest = sequence->forest;
  // Without KV for its rows the forest was given up.
  if (nodes.size() != forest.token.size() || verdict.accepted.size() != nodes.size()) return;
  SuffixAcceptance& acceptance = AcceptanceOf(*sequence);
  for (int layer = 0; layer < forest.depth() && layer < verdict.stats.layers; ++layer) {
    for (int i = forest.layer_begin[layer]; i < forest.layer_begin[layer + 1]; ++i) {
      const decoding::SuffixNode& node = nodes[i];
      if (node.source == SuffixSource::kKnown) continue;
      const TreePlace parent = forest.parent[i];
      if (!parent.is_root() && !verdict.accepted[Index(parent.node())]) continue;
      const bool taken = verdict.accepted[i];
      acceptance.Record(node.source, node.length, node.share, taken);
      counts_[node.source].taken += taken;
      SuffixState::Misses& misses = state.misses[SourceIndex(node.source)];
      misses.seen = std::max(0.0, kForgetMisses * misses.seen + node.share - taken);
      misses.expected = kForgetMisses * misses.expected + node.share - node.taken;
    }
  }
}

void SuffixDrafts::Forget(Sequence* sequence) {
  if (sequence->suffixes == nullptr) return;
  index_bytes_ -= sequence->suffixes->bytes;
  sequence->suffixes.reset();
}

}  // namespace coppice::worker
