// A loaded transformer with its KV pool, and forward batches built by hand for one sequence: prefix
// rows in the blocks 1, 2, ..., forest rows in scratch slots behind them. Shared by the tests of
// the forward pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/forward_batch.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "model/transformer.h"

namespace coppice {

struct LoadedModel {
  std::unique_ptr<Communicator> single;  // when no communicator was given
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<KvPool> pool;

  // The logits of a batch, copied.
  absl::StatusOr<std::vector<float>> Run(const ForwardBatch& batch);
};

inline constexpr int kTestBlocks = 40;  // of the pool, the sink included

// communicator nullptr = one rank; else *communicator must outlive the result.
absl::StatusOr<LoadedModel> LoadForTest(const LoadOptions& options,
                                        Communicator* communicator = nullptr);

struct ForestNode {
  int parent = -1;  // index of an earlier node; -1 = the end of the prefix
  TokenId token = 0;
};

class BatchSketch {
 public:
  // One block table that covers `capacity` tokens; scratch slots follow it.
  explicit BatchSketch(int capacity);
  // Tokens [begin, end) of the sequence as prefix rows; logits of the last `logits` of them.
  BatchSketch& Prefix(const std::vector<TokenId>& tokens, int begin, int end, int logits);
  // A forest behind a prefix of `prefix` tokens; logits of every node. Node i lives in scratch slot
  // i.
  BatchSketch& Forest(int prefix, const std::vector<ForestNode>& nodes);
  int32_t prefix_slot(int position) const { return kBlockSize + position; }
  int32_t scratch_slot(int node) const { return (1 + blocks_) * kBlockSize + node; }
  ForwardBatch batch;

 private:
  int blocks_;
};

// max |a - b| / max |b|.
double RelativeError(const std::vector<float>& a, const std::vector<double>& b);

}  // namespace coppice
