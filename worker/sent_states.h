// Which states of the target a draft node still needs of one session (worker/row_states.h). A
// channel is reliable and keeps the order, so nothing needs an acknowledgement but a request: an
// answered one says that the node has computed all its rows. A request that a newer one replaced may
// have left any of them out. A new session begins with a new object. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "decoding/draft_request.h"
#include "decoding/path_tree.h"
#include "plan/token_tree.h"
#include "worker/row_states.h"

namespace coppice::worker {

class SentStates {
 public:
  // Stable rows before this one need not be sent again. Row 0 has no state.
  uint32_t rows() const { return rows_; }
  // Those before `end` have been sent by themselves: the node keeps them until it reads them.
  void Sent(uint32_t end) { rows_ = end; }

  struct Lacking {
    WantedRows rows;
    std::vector<NodeId> nodes;  // of the request's root tree: the places of rows.paths
  };
  // The rows of a request that the node may lack. shared: the path that all roots of the tree
  // share; prompt: tokens. All stable rows of the prompt must have been sent.
  Lacking Ask(const decoding::PathTree& paths, decoding::PathId shared,
              const decoding::RootTree& roots, int prompt);
  // The last request has been answered.
  void Answered();

 private:
  uint32_t rows_ = 1;
  std::vector<decoding::PathId>
      known_;  // ascending; beyond rows_: the node has computed their rows
  // The outstanding request.
  bool asked_ = false;
  uint32_t asked_rows_ = 1;
  std::vector<decoding::PathId> asked_paths_;  // ascending
};

}  // namespace coppice::worker
