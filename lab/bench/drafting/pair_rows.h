// The rows of a target and a draft after the paths of one prompt, for simulated_drafting. A path of
// generated tokens is known by its hash (docs/algorithms.md 2). Every row is computed once.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "comm/communicator.h"
#include "decoding/params.h"
#include "model/model_runner.h"
#include "sampling/distribution.h"

namespace coppice::lab {

class PairRows {
 public:
  virtual ~PairRows() = default;
  // Says which path a hash is. The path without tokens has a name already.
  virtual void Name(uint64_t path, uint64_t parent, TokenId token) = 0;
  // Raw logits [vocab] of the target after a named path.
  virtual absl::Span<const float> Target(uint64_t path) = 0;
  // The draft's row after a named path (decoding/drafter.h, DraftRow).
  virtual const sampling::Distribution& Draft(uint64_t path) = 0;
};

// Of two models. One prompt after the other.
class ModelPairRows : public PairRows {
 public:
  // Errors name the folder.
  static absl::StatusOr<std::unique_ptr<ModelPairRows>> Load(const std::string& target_dir,
                                                             const std::string& draft_dir);
  // Forgets the rows of the last prompt and reads this one.
  absl::Status Begin(const std::vector<TokenId>& prompt, const decoding::DecodingParams& params);

  void Name(uint64_t path, uint64_t parent, TokenId token) override;
  absl::Span<const float> Target(uint64_t path) override;
  const sampling::Distribution& Draft(uint64_t path) override;

 private:
  struct Path {
    uint64_t parent = 0;
    TokenId token = 0;
    int length = 0;
  };
  struct Model {
    std::unique_ptr<model::ModelRunner> runner;
    model::SequenceHandle sequence = -1;
    absl::flat_hash_map<uint64_t, model::KvNode> kv;  // by path
  };
  absl::Status Read(const std::vector<TokenId>& prompt, Model* model);
  // Runs the model after a path, for the first time.
  absl::Span<const float> Row(uint64_t path, Model* model);

  std::unique_ptr<comm::Communicator> single_;
  Model target_, draft_;
  decoding::DecodingParams params_;
  absl::flat_hash_map<uint64_t, Path> paths_;
  absl::flat_hash_map<uint64_t, std::vector<float>> target_rows_;
  std::unordered_map<uint64_t, sampling::Distribution> draft_rows_;  // references stay valid
};

}  // namespace coppice::lab
