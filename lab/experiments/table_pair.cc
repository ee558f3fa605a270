// Decodes on the rows of a RowModel as worker and draft node do, without running a model.
#include <utility>

#include "base/status.h"
#include "decoding/drafter.h"
#include "lab/exact/hash_lm.h"
#include "lab/experiments/row_model.h"

namespace coppice::lab {
namespace {

// The target rows of one round.
class RoundRows : public sampling::RowSource {
 public:
  RoundRows(const RowModel& model, int prompt, std::vector<uint64_t> hashes)
      : model_(model), prompt_(prompt), hashes_(std::move(hashes)) {}
  absl::Span<const float> Logits(int row) override {
    logits_ = model_.Target(prompt_, hashes_[row]);
    return logits_;
  }

 private:
  const RowModel& model_;
  int prompt_;
  std::vector<uint64_t> hashes_;
  std::vector<float> logits_;
};

class TableSequence : public PairSequence {
 public:
  TableSequence(const RowModel* model, int prompt, const decoding::DecodingParams& params,
                std::unique_ptr<decoding::BeamDecoder> decoder)
      : model_(model), prompt_(prompt), params_(params), decoder_(std::move(decoder)) {}

  const decoding::BeamDecoder& decoder() const override { return *decoder_; }

  absl::StatusOr<decoding::DraftForest> Draft(int width, int depth) override {
    const decoding::DraftState state = decoder_->draft_state();
    COPPICE_ASSIGN_OR_RETURN(auto drafter, decoding::MakeDrafter(params_, state, width));
    for (int level = 0; level < depth && !drafter->frontier().empty(); ++level) {
      const std::vector<uint64_t> hashes = test::RowHashes(state.root_hash, drafter->forest());
      std::vector<sampling::Distribution> rows;
      for (const TreePlace place : drafter->frontier()) {
        const uint64_t hash = hashes[drafter->forest().RowOf(place)];
        const int length = static_cast<int>(state.layers_committed) + level;
        rows.push_back(decoding::DraftRow(model_->Draft(prompt_, hash), params_, length));
      }
      drafter->Grow(rows);
    }
    return drafter->Sent();
  }

  absl::StatusOr<decoding::Verdict> Round(decoding::DraftForest forest) override {
    RoundRows rows(*model_, prompt_, test::RowHashes(decoder_->draft_state().root_hash, forest));
    return decoder_->Advance(forest, &rows);
  }

 private:
  const RowModel* model_;
  int prompt_;
  decoding::DecodingParams params_;
  std::unique_ptr<decoding::BeamDecoder> decoder_;
};

class TablePair : public ModelPair {
 public:
  explicit TablePair(std::unique_ptr<RowModel> model) : model_(std::move(model)) {}
  std::vector<std::pair<std::string, std::string>> Describe() const override {
    return model_->Describe();
  }
  int vocab_size() const override { return model_->vocab_size(); }
  std::vector<TokenId> stop_ids() const override { return {}; }
  int num_prompts() const override { return model_->num_prompts(); }

  absl::StatusOr<std::unique_ptr<PairSequence>> Start(
      int prompt, const decoding::DecodingParams& params) override {
    COPPICE_ASSIGN_OR_RETURN(auto decoder, decoding::MakeBeamDecoder(params));
    return std::make_unique<TableSequence>(model_.get(), prompt, params, std::move(decoder));
  }

  absl::StatusOr<PathRows> RowsAlong(int prompt, absl::Span<const TokenId> tokens) override {
    PathRows rows;
    rows.vocab_size = vocab_size();
    uint64_t hash = sampling::kRootHash;
    for (TokenId token : tokens) {
      const std::vector<float> target = model_->Target(prompt, hash);
      const std::vector<float> draft = model_->Draft(prompt, hash);
      rows.target.insert(rows.target.end(), target.begin(), target.end());
      rows.draft.insert(rows.draft.end(), draft.begin(), draft.end());
      hash = sampling::ExtendHash(hash, token);
    }
    return rows;
  }

 private:
  std::unique_ptr<RowModel> model_;
};

}  // namespace

std::unique_ptr<ModelPair> MakeTablePair(std::unique_ptr<RowModel> rows) {
  return std::make_unique<TablePair>(std::move(rows));
}

}  // namespace coppice::lab
