// A LocalReplica that decodes whole sequences. It CHECKs every step and the integrity of both KV
// tries. Tests compare its results with and without drafts.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "lab/experiments/local_replica.h"

namespace coppice::test {

class CheckedReplica {
 public:
  explicit CheckedReplica(const lab::LocalReplicaOptions& options)
      : replica_(Value(lab::LocalReplica::Load(options))) {}
  CheckedReplica(const std::string& target_dir, const std::string& draft_dir)
      : CheckedReplica(OptionsOf(target_dir, draft_dir)) {}

  static lab::LocalReplicaOptions OptionsOf(const std::string& target_dir,
                                            const std::string& draft_dir) {
    lab::LocalReplicaOptions options;
    options.target_dir = target_dir;
    options.draft_dir = draft_dir;
    options.kv_bytes = 8 << 20;
    return options;
  }

  struct Outcome {
    std::vector<decoding::Hypothesis> hypotheses;
    std::vector<std::vector<TokenScore>> scores;  // of each, where they are asked for
    std::vector<std::vector<TokenId>> drafted;    // of each forest
    int layers = 0, passes = 0;
  };

  // width 0: no drafts. top: asks for scores with so many alternatives.
  Outcome Decode(const std::vector<TokenId>& prompt, const decoding::DecodingParams& params,
                 int width, int depth, std::optional<int> top = std::nullopt) {
    Check(replica_->Open(prompt, params, width > 0));
    if (top) replica_->KeepScores(*top);
    const decoding::BeamDecoder& decoder = replica_->decoder();
    Outcome outcome;
    decoding::DraftForest forest = decoding::DraftForest::Empty(1);
    while (!decoder.finished()) {
      if (before_pass) before_pass();
      outcome.layers += Value(replica_->Round(std::move(forest))).stats.layers;
      ++outcome.passes;
      Check(replica_->CheckIntegrity());
      if (decoder.finished()) break;
      const int useful = std::min(depth, decoder.max_useful_depth());
      if (before_pass) before_pass();
      forest = width > 0 && useful > 0
                   ? Value(replica_->Draft(width, useful))
                   : decoding::DraftForest::Empty(static_cast<int>(decoder.roots().size()));
      outcome.drafted.push_back(forest.token);
    }
    outcome.hypotheses = decoder.Result();
    for (const decoding::Hypothesis& hypothesis : outcome.hypotheses) {
      if (top) outcome.scores.push_back(replica_->Scores(hypothesis.tokens));
    }
    replica_->Close();
    Check(replica_->CheckIntegrity());
    return outcome;
  }

  lab::LocalReplica& replica() { return *replica_; }
  std::function<void()> before_pass;  // may be empty

  int64_t target_blocks_used() const { return replica_->target_blocks_used(); }
  int64_t draft_blocks_used() const { return replica_->draft_blocks_used(); }

 private:
  static void Check(const absl::Status& status) {
    COPPICE_CHECK_MSG(status.ok(), std::string(status.message()));
  }
  template <typename T>
  static T Value(absl::StatusOr<T> value) {
    Check(value.status());
    return *std::move(value);
  }

  std::unique_ptr<lab::LocalReplica> replica_;
};

}  // namespace coppice::test
