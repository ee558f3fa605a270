// Drafts without a draft model: below every root, what followed the earlier occurrences of its last
// tokens, as a tree by their number. The worker calls it between two rounds. The forest is for
// methods that verify trees of any origin: it has no proposals, and it depends on the texts alone,
// never on noise. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/draft_size.h"
#include "decoding/forest.h"
#include "decoding/method.h"
#include "decoding/params.h"
#include "decoding/suffix_corpus.h"
#include "decoding/suffix_index.h"

namespace coppice::decoding {

// Where a continuation was found. kKnown: the target has decided it already.
enum class SuffixSource { kPrompt, kAnswer, kCorpus, kKnown };
inline constexpr int kSuffixSources = 3;  // without kKnown
const char* SuffixSourceName(SuffixSource source);

// Methods that are lossless and whose drafts are a tree without proposals.
bool TakesSuffixDrafts(const MethodRow& method);

// The texts of one request.
struct SuffixTexts {
  absl::Span<const TokenId> prompt;
  const SuffixIndex* index = nullptr;    // of the prompt and of all paths of the decoder
  const SuffixCorpus* corpus = nullptr;  // nullptr: none is asked
};

struct SuffixNode {
  SuffixSource source = SuffixSource::kPrompt;
  int length = 0;    // tokens that match, up to the node's parent
  double share = 1;  // of its siblings' matches, weighted by length
  double taken = 1;  // probability that the target takes it if it takes the parent
};

struct SuffixLimits {
  int depth = 0;  // layers
  int nodes = 0;  // of the forest
  // The shape that the request prescribes, if `prescribed`: then the forest is as large as this
  // allows. Otherwise as large as pays.
  DraftSize size;
  int width = 0;
  bool prescribed = false;
};

struct SuffixDraft {
  DraftForest forest;
  std::vector<SuffixNode> nodes;  // [nodes of the forest]
  double gain = 1;                // expected layers per second, relative to a round without it
};

// taken: the probability that the target takes what follows a match of so many tokens.
// gain: layers per second of a round with so many nodes that decides so many layers, relative to
// one without a draft.
SuffixDraft DraftFromSuffixes(const BeamDecoder& decoder, const DecodingParams& params,
                              const SuffixTexts& texts, const SuffixLimits& limits,
                              absl::FunctionRef<double(SuffixSource, int length)> taken,
                              absl::FunctionRef<double(double layers, int nodes)> gain);

}  // namespace coppice::decoding
