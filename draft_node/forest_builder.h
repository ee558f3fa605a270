// Grows one draft forest; joins decoding and model on the draft node. One per request in flight.
// For every level, DraftService asks each builder for its rows, runs one step for all, and gives
// each its logits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/host_threads.h"
#include "decoding/draft_request.h"
#include "decoding/drafter.h"
#include "decoding/forest.h"
#include "decoding/row_path.h"
#include "draft_node/block_forest.h"
#include "draft_node/draft_session.h"
#include "kernels/backend.h"
#include "model/kv/step_builder.h"
#include "model/model_runner.h"
#include "sampling/distribution.h"

namespace coppice::draft_node {

class ForestBuilder {
 public:
  // session and blocks must outlive the builder; a session has one at a time. request.state has the
  // hashes of the roots, and the session knows their stable tokens and has taken the states that
  // came with the request. Matches the request against the session's trie and frees dead nodes.
  // ResourceExhausted: the KV pool is full. InvalidArgument: the draft takes states, and that of a
  // row is missing. After an error the session must be closed.
  static absl::StatusOr<std::unique_ptr<ForestBuilder>> Start(decoding::DraftRequest request,
                                                              DraftSession* session,
                                                              model::BlockManager* blocks);
  // Before the first pass, for a block drafter: all levels come from one pass of at most
  // max_rows rows. The forest is no deeper than a block allows.
  void UseBlocks(const BlockModel& model, int vocab, int max_rows);
  // Frees the nodes that later rounds must not find: those whose rows never ran, and those whose KV
  // was made of the draft's own states.
  ~ForestBuilder();
  ForestBuilder(const ForestBuilder&) = delete;
  ForestBuilder& operator=(const ForestBuilder&) = delete;

  bool done() const { return level_ >= request_.depth || drafter_->frontier().empty(); }
  // True if the next forward pass is the last that its depth allows.
  bool at_last_level() const { return blocks_of_roots_ || level_ + 1 >= request_.depth; }
  // True if a forward pass has run. Until then, the new nodes of the session's trie have no KV.
  bool started() const { return level_ > 0; }
  uint32_t round() const { return request_.round; }
  int rows() const;  // rows of the next level
  // Adds the rows of the next level, with what the drafter needs of each.
  absl::Status AppendRows(model::StepBuilder* step);
  // Chooses the level from its rows, or all levels from those of blocks. rows: of the whole step.
  // Appends new commits to *commits.
  absl::Status Consume(const kernels::StepRows& rows, HostThreads* threads,
                       std::vector<KvCopy>* commits);
  decoding::DraftForest Sent() const;

  // ---- instead, if the device chooses the levels (device_forests.h)
  // Whether this runner's backend can do so. Call it before the first forward pass.
  bool GrowsOnDevice(const model::ModelRunner& runner) const;
  int depth() const { return request_.depth; }
  int rows_at(int level) const;
  // The forest, to which PlanLevel adds its levels.
  ForestPlan::Forest DeviceForest() const;
  // Adds the rows of level 0, 1, ... in turn: below level 0 as the device expects them. Appends new
  // commits to *commits, for the step after. A full KV pool makes the forest less deep.
  absl::Status PlanLevel(model::StepBuilder* step, std::vector<KvCopy>* commits,
                         ForestPlan::Forest* forest);
  // Takes what the device has chosen. Then the forest is done.
  absl::Status TakeGrown(const GrownForest& grown);

 private:
  ForestBuilder(decoding::DraftRequest request, DraftSession* session, model::BlockManager* blocks);
  void FindRootStates();
  absl::Status CheckTree() const;
  absl::Status MatchRoots();
  // The state that the request brings for the row of an entry of its tree; empty: none.
  absl::Span<const uint16_t> StateOf(NodeId entry) const;
  absl::Status MissingStateOf(NodeId entry) const;
  model::KvNode NodeOf(TreePlace place) const { return At(place, roots_, node_kv_); }
  int length() const;  // generated tokens before the rows of this level
  absl::Status AppendBlocks(model::StepBuilder* step);
  // The draft rows after the frontier, read from the step.
  absl::StatusOr<std::vector<sampling::Distribution>> ReadFrontier(const kernels::StepRows& step,
                                                                   HostThreads* threads) const;
  // Grows the next level, and keeps the log-probabilities of its nodes if the session wants them.
  void Grow(absl::Span<const sampling::Distribution> rows);
  // The path of a place. Holds the tokens only if the session has penalties, and the state
  // of the output's format if there is one.
  sampling::RowPath PathOf(TreePlace place) const;
  // What the draft needs of the row after a path.
  RowNeed NeedAfter(const sampling::RowPath& path, model::StepBuilder* step) const;
  // All tokens of the roots have KV after the first forward pass, so the tokens that the roots'
  // parents share move to the prefix, and no state that has come is needed any more.
  absl::Status CommitRoots(std::vector<KvCopy>* commits);

  decoding::DraftRequest request_;
  DraftSession* session_;
  model::BlockManager* blocks_;
  std::unique_ptr<decoding::Drafter> drafter_;
  std::optional<BlockForest> blocks_of_roots_;  // of a block drafter
  int level_ = 0;
  std::vector<model::KvNode> roots_;
  std::vector<TokenId> root_token_;
  std::vector<absl::Span<const uint16_t>> root_state_;  // empty each if the draft takes none
  std::vector<MissingRow> missing_;                     // rows of the first level beside the roots
  std::vector<model::KvNode> known_;                    // [roots] the last node above that had KV
  std::vector<model::KvNode> node_kv_;                  // [forest nodes] KV of those evaluated
  std::vector<int> need_;                               // [frontier] index in the rows of the step
  std::vector<double> log_probs_;                       // [forest nodes] if the session wants them
  // [level >= 1][row] KV of levels that a device grows.
  std::vector<std::vector<model::KvNode>> planned_;
  std::optional<decoding::DraftForest> grown_;
};

}  // namespace coppice::draft_node
