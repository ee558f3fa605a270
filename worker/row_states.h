// States of the target for drafts that take them (model/model_config.h, TargetStates): where they
// are in the target's KV pool. Called by DraftClient. Owned by the engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "decoding/path_tree.h"
#include "model/model_runner.h"
#include "worker/sequence.h"

namespace coppice::worker {

// The path of the generated tokens that all roots share without the last token of each. Prompt and
// these are the stable tokens.
decoding::PathId StablePath(const Sequence& sequence);

// Rows of a draft: tokens of a sequence. The state of a row is the target's state of the token
// before it.
struct WantedRows {
  uint32_t first = 0, count = 0;        // of stable tokens, numbered from the prompt's first one on
  std::vector<decoding::PathId> paths;  // then those of the last tokens of these paths
};

class StateSource {
 public:
  virtual ~StateSource() = default;
  virtual int columns() const = 0;
  // The states of stable rows before this one, from row 1 on, can be read now. 1: none can.
  virtual uint32_t Readable(const Sequence& sequence) const = 0;
  // Sets *out to [count + paths][columns] bf16. FailedPrecondition names a row whose state is not
  // there. Not while a step runs.
  virtual absl::Status Read(const Sequence& sequence, const WantedRows& rows,
                            std::vector<uint16_t>* out) = 0;
};

// Those that the target's runner keeps with its KV.
class PoolStates : public StateSource {
 public:
  // *runner must keep states, and outlive this.
  explicit PoolStates(model::ModelRunner* runner) : runner_(runner) {}

  int columns() const override { return runner_->state_columns(); }
  uint32_t Readable(const Sequence& sequence) const override;
  absl::Status Read(const Sequence& sequence, const WantedRows& rows,
                    std::vector<uint16_t>* out) override;

 private:
  model::ModelRunner* runner_;
};

}  // namespace coppice::worker
