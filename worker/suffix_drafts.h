// Drafts without a draft model, in the leader: a sequence whose last tokens occurred before in its
// texts gets what followed there as the draft of its next round, at once and without a message. Owns
// what the target took of such drafts, by the length of the match, and the bound of their memory.
// Used while no draft node has joined. Thread-compatible: owned by the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "decoding/suffix_corpus.h"
#include "decoding/suffix_drafter.h"
#include "decoding/suffix_index.h"
#include "worker/forest_sizer.h"

namespace coppice::worker {

struct Sequence;

struct SuffixDraftOptions {
  bool on = true;
  // Bytes of the indexes of all sequences. A sequence that begins beyond them has no such drafts.
  int64_t index_bytes = int64_t{256} << 20;
  // Text of the operator that is asked too; nullptr: none.
  std::shared_ptr<const decoding::SuffixCorpus> corpus;
};

// How often the target takes what follows a match of some length.
class SuffixAcceptance {
 public:
  // Probability, for a match of `length` tokens.
  double Of(decoding::SuffixSource source, int length) const;
  // Candidates that were expected to hold `share` of the continuations were tested, and this one
  // was taken or not.
  void Record(decoding::SuffixSource source, int length, double share, bool taken);
  // Brings what was measured a little nearer to what is assumed, so that a source that failed is
  // tried again.
  void Fade();

 private:
  static constexpr int kLengths = 7;  // 2, 3, 4, to 6, to 9, to 15, more
  struct Tested {
    double tests = 0, taken = 0;  // decayed
  };
  static int Bucket(int length);
  Tested tested_[decoding::kSuffixSources][kLengths];
};

// Of one sequence, beside its decoder.
struct SuffixState {
  explicit SuffixState(absl::Span<const TokenId> prompt) : index(prompt) {}
  decoding::SuffixIndex index;
  size_t bytes = 0;  // counted in SuffixDrafts::index_bytes
  // By source, decayed: shares that were not taken, and how many were expected not to be.
  struct Misses {
    double seen = 0, expected = 0;
  };
  Misses misses[decoding::kSuffixSources];
  std::vector<decoding::SuffixNode> nodes;  // [nodes] of the forest of this round
};

class SuffixDrafts {
 public:
  explicit SuffixDrafts(SuffixDraftOptions options) : options_(std::move(options)) {}

  bool on() const { return options_.on; }
  // The sequence may have such drafts: its request wants drafts, and its method verifies trees of
  // any origin.
  bool Serve(const Sequence& sequence) const;
  // The name under which a sizer keeps the figures of these drafts.
  static std::string SizedAs(const Sequence& sequence);

  // The forest of the next round, empty if none is worth its rows. gain: as in DraftFromSuffixes.
  decoding::DraftForest Propose(Sequence* sequence, const SizerLimits& limits, bool windows,
                                absl::FunctionRef<double(double, int)> gain);
  // The target has decided a round with such a draft. Called before the sequence's next Propose.
  void Record(Sequence* sequence, const decoding::Verdict& verdict);
  // The sequence has ended or gives its memory back; its next Propose makes the index again.
  void Forget(Sequence* sequence);

  // Nodes of drafts by source, and how many of them the target took.
  struct Count {
    uint64_t drafted = 0, taken = 0;
  };
  const std::map<decoding::SuffixSource, Count>& counts() const { return counts_; }
  size_t index_bytes() const { return index_bytes_; }
  size_t corpus_tokens() const { return options_.corpus ? options_.corpus->size() : 0; }

 private:
  SuffixAcceptance& AcceptanceOf(const Sequence& sequence);
  // Makes or extends the index. False: there is no memory for it.
  bool UpdateIndex(Sequence* sequence);

  SuffixDraftOptions options_;
  std::map<std::pair<const decoding::MethodRow*, int>, SuffixAcceptance> acceptance_;  // method, W
  std::map<decoding::SuffixSource, Count> counts_;
  size_t index_bytes_ = 0;
};

}  // namespace coppice::worker
