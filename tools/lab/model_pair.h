// A target and a draft that the laboratory runs sequences on: toy rows (table_pair.h) or two
// Hugging Face folders (replica_pair.h). The runner drives both alike, with the decoders and
// drafters of the method table. Thread-compatible; one sequence at a time.
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

// One sequence. Every round but the first may have a draft; the first decides the layer below the
// prompt, as the pass that ends a prefill does.
class PairSequence {
 public:
  virtual ~PairSequence() = default;
  virtual const decoding::BeamDecoder& decoder() const = 0;
  // What a draft node would ship for the roots of decoder().
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
  // Name and value of what defines the pair, for the report.
  virtual std::vector<std::pair<std::string, std::string>> Describe() const = 0;
  virtual int vocab_size() const = 0;
  virtual std::vector<TokenId> stop_ids() const = 0;
  virtual int num_prompts() const = 0;
  // The sequence must end before the next one starts.
  virtual absl::StatusOr<std::unique_ptr<PairSequence>> Start(
      int prompt, const decoding::DecodingParams& params) = 0;
  // Rows after prompt and tokens[0, i), i = 0..tokens.size() - 1: those that the tokens were chosen
  // from. No sequence may be running.
  virtual absl::StatusOr<PathRows> RowsAlong(int prompt, absl::Span<const TokenId> tokens) = 0;
};

}  // namespace coppice::lab
