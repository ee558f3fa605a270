// A target and a draft on which the laboratory runs sequences: toy rows (row_model.h) or two
// Hugging Face folders (replica_pair.h). Both use the decoders and drafters of the method table.
// One sequence at a time. Thread-compatible.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/params.h"

namespace coppice::lab {

// One sequence. The first round decides the layer below the prompt, like the pass that ends a
// prefill. Every later round may have a draft.
class PairSequence {
 public:
  virtual ~PairSequence() = default;
  virtual const decoding::BeamDecoder& decoder() const = 0;
  // The forest that a draft node would send for the roots of decoder().
  virtual absl::StatusOr<decoding::DraftForest> Draft(int width, int depth) = 0;
  // One target pass and its verdict.
  virtual absl::StatusOr<decoding::Verdict> Round(decoding::DraftForest forest) = 0;
};

// Raw logits (nats up to a constant) of both models at the positions of one path.
struct PathRows {
  int vocab_size = 0;
  std::vector<float> target;  // [positions, vocab]
  std::vector<float> draft;   // [positions, vocab]
  int positions() const { return static_cast<int>(target.size()) / vocab_size; }
  absl::Span<const float> TargetRow(int i) const { return Row(target, i); }
  absl::Span<const float> DraftRow(int i) const { return Row(draft, i); }

 private:
  absl::Span<const float> Row(const std::vector<float>& rows, int i) const {
    return absl::MakeConstSpan(rows).subspan(static_cast<size_t>(i) * vocab_size, vocab_size);
  }
};

class ModelPair {
 public:
  virtual ~ModelPair() = default;
  // Names and values that define the pair, for the report.
  virtual std::vector<std::pair<std::string, std::string>> Describe() const = 0;
  virtual int vocab_size() const = 0;
  virtual std::vector<TokenId> stop_ids() const = 0;
  virtual int num_prompts() const = 0;
  // The sequence must end before the next one starts.
  virtual absl::StatusOr<std::unique_ptr<PairSequence>> Start(
      int prompt, const decoding::DecodingParams& params) = 0;
  // The rows from which the tokens were chosen: after prompt and tokens[0, i), for
  // i = 0..tokens.size() - 1. No sequence may be running.
  virtual absl::StatusOr<PathRows> RowsAlong(int prompt, absl::Span<const TokenId> tokens) = 0;
};

}  // namespace coppice::lab
