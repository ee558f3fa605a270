// The draft rows of a forest that come from one pass of a block drafter (ModelConfig::block).
// Below each root the pass has a block: the root's token and masks. Its rows give the logits of the
// tokens after the root, one row for each level of the forest, whatever the tokens between; a node
// adds to them the bias of its own token, if the model has one. So all levels are chosen after a
// single pass. Used by ForestBuilder; one per request in flight.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "base/host_threads.h"
#include "base/types.h"
#include "decoding/params.h"
#include "draft_node/read_row.h"
#include "kernels/backend.h"
#include "model/kv/block_manager.h"
#include "model/kv/step_builder.h"
#include "model/markov_bias.h"
#include "model/model_config.h"
#include "plan/candidate_row.h"
#include "plan/step_plan.h"
#include "sampling/row_path.h"

namespace coppice::draft_node {

// What a session needs to know of such a draft.
struct BlockModel {
  model::BlockDraft block;                    // size 0: the draft is no such model
  const model::MarkovBias* markov = nullptr;  // nullptr: none. Must outlive the session

  bool used() const { return block.size > 0; }
};

class BlockForest {
 public:
  // The bias of a node is added to so many candidates of its row, those that are most likely without
  // it. The other tokens are left out; with a format they stay without a bias.
  static constexpr int kCandidates = 512;

  // levels: at most those of the forest; fewer if a block has fewer. vocab: tokens of the model.
  BlockForest(const BlockModel& model, int levels, int vocab);

  int levels() const { return levels_; }
  bool adds_bias() const { return model_.markov != nullptr; }
  int rows_of_root() const { return RowsOf(levels_); }
  // Takes as many levels as `roots` blocks in `rows` rows can have, but at least one.
  void Limit(int roots, int rows);

  // Adds the rows of the block of the next root. Its nodes are below the root's; the caller frees
  // them after the pass. need: of a row to which no bias is added.
  absl::Status AppendBlock(model::SequenceHandle sequence, model::KvNode root, TokenId token,
                           RowNeed need, model::BlockManager* blocks, model::StepBuilder* step);
  // Takes the rows of the blocks once the step has run; *rows must outlive the calls of Read.
  void Take(const kernels::StepRows* rows, HostThreads* threads);
  // The draft row after a node `level` levels below root `root`; the root itself is at level 0.
  // token: of the node. Any thread.
  ReadRow Read(int root, int level, TokenId token, const decoding::DecodingParams& params,
               const sampling::RowPath& path) const;

 private:
  // The most likely tokens of a row, or its first invalid logit.
  struct Candidates {
    TokenList list;
    TokenId bad_token = -1;
    float bad_logit = 0;
  };
  int RowsOf(int levels) const { return levels + (model_.block.in_place ? 1 : 0); }
  Candidates CandidatesOf(int need) const;

  const BlockModel model_;
  const int vocab_;
  int levels_;
  std::vector<int> needs_;  // [roots][levels] index in the rows of the step
  const kernels::StepRows* rows_ = nullptr;
  std::vector<Candidates> candidates_;  // [roots][levels] if there is a bias
};

}  // namespace coppice::draft_node
