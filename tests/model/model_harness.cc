#include "tests/model/model_harness.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace coppice {

absl::StatusOr<std::vector<float>> LoadedModel::Run(const ForwardBatch& batch) {
  COPPICE_ASSIGN_OR_RETURN(const absl::Span<const float> logits, model->Forward(batch, pool.get()));
  return std::vector<float>(logits.begin(), logits.end());
}

absl::StatusOr<LoadedModel> LoadForTest(const LoadOptions& options, Communicator* communicator) {
  LoadedModel loaded;
  if (communicator == nullptr) {
    loaded.single = MakeSingleCommunicator();
    communicator = loaded.single.get();
  }
  COPPICE_ASSIGN_OR_RETURN(loaded.backend, MakeBackend("cpu", /*threads=*/1));
  COPPICE_ASSIGN_OR_RETURN(loaded.model,
                           Transformer::Load(options, loaded.backend.get(), communicator));
  COPPICE_ASSIGN_OR_RETURN(loaded.pool,
                           loaded.backend->MakeKvPool(loaded.model->kv_shape(kTestBlocks)));
  return loaded;
}

BatchSketch::BatchSketch(int capacity) : blocks_((capacity + kBlockSize - 1) / kBlockSize) {
  COPPICE_CHECK(blocks_ + 2 < kTestBlocks);
  for (int block = 1; block <= blocks_; ++block) batch.table.push_back(block);
  batch.table_begin = {0, blocks_};
  batch.chain_begin = {0};
}

BatchSketch& BatchSketch::Prefix(const std::vector<TokenId>& tokens, int begin, int end,
                                 int logits) {
  for (int position = begin; position < end; ++position) {
    batch.token.push_back(tokens[position]);
    batch.position.push_back(position);
    batch.slot.push_back(prefix_slot(position));
    batch.row_table.push_back(0);
    batch.prefix_len.push_back(position + 1);
    batch.chain_begin.push_back(static_cast<int32_t>(batch.chain.size()));
    if (position >= end - logits) batch.logits_rows.push_back(batch.rows() - 1);
  }
  return *this;
}

BatchSketch& BatchSketch::Forest(int prefix, const std::vector<ForestNode>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<int32_t> chain;
    for (int node = static_cast<int>(i); node >= 0; node = nodes[node].parent)
      chain.push_back(scratch_slot(node));
    batch.chain.insert(batch.chain.end(), chain.rbegin(), chain.rend());
    batch.token.push_back(nodes[i].token);
    batch.position.push_back(prefix + static_cast<int>(chain.size()) - 1);
    batch.slot.push_back(chain.front());
    batch.row_table.push_back(0);
    batch.prefix_len.push_back(prefix);
    batch.chain_begin.push_back(static_cast<int32_t>(batch.chain.size()));
    batch.logits_rows.push_back(batch.rows() - 1);
  }
  return *this;
}

double RelativeError(const std::vector<float>& a, const std::vector<double>& b) {
  COPPICE_CHECK(a.size() == b.size());
  double difference = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::isnan(a[i]) ? INFINITY : std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return difference / largest;
}

}  // namespace coppice
