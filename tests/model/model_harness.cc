#include "tests/model/model_harness.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace coppice::model {

absl::StatusOr<std::vector<float>> LoadedModel::Run(const StepPlan& plan) {
  COPPICE_RETURN_IF_ERROR(backend->Submit(plan, decoder.get()));
  COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, backend->Wait());
  std::vector<float> logits;
  for (size_t need = 0; rows != nullptr && need < plan.needs.size(); ++need) {
    const absl::Span<const float> row = rows->Whole(static_cast<int>(need));
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

absl::StatusOr<LoadedModel> LoadForTest(const LoadOptions& options,
                                        comm::Communicator* communicator, int threads,
                                        const std::string& kind) {
  LoadedModel loaded;
  if (communicator == nullptr) {
    loaded.single = comm::MakeSingleCommunicator();
    communicator = loaded.single.get();
  }
  loaded.threads = std::make_unique<ThreadTeam>(threads);
  kernels::BackendOptions backend;
  backend.threads = loaded.threads.get();
  backend.communicator = communicator;
  backend.kind = kind;
  backend.collectives.place = communicator->rank();
  COPPICE_ASSIGN_OR_RETURN(loaded.backend, kernels::MakeBackend(backend));
  COPPICE_ASSIGN_OR_RETURN(TransformerParts parts,
                           LoadTransformer(options, loaded.backend.get(), communicator));
  COPPICE_ASSIGN_OR_RETURN(loaded.pool, loaded.backend->MakeKvPool(parts.kv_shape(kTestBlocks)));
  COPPICE_ASSIGN_OR_RETURN(
      loaded.decoder, Transformer::Create(std::move(parts), loaded.backend.get(), loaded.pool.get(),
                                          communicator->size()));
  return loaded;
}

PlanSketch::PlanSketch(int capacity) : blocks_((capacity + kBlockSize - 1) / kBlockSize) {
  COPPICE_CHECK(blocks_ + 2 < kTestBlocks);
  for (int block = 1; block <= blocks_; ++block) plan.table.push_back(block);
  plan.table_begin = {0, blocks_};
  plan.segments = {{0, 0, 0}};
}

// The chain of the row, if it has one, is already in the plan.
void PlanSketch::AddRow(TokenId token, int position, int32_t slot, bool logits) {
  if (logits) {
    RowNeed need;
    need.row = plan.rows();
    plan.needs.push_back(need);
  }
  plan.token.push_back(token);
  plan.position.push_back(position);
  plan.slot.push_back(slot);
  plan.chain_begin.push_back(static_cast<int32_t>(plan.chain.size()));
  ++plan.segments[0].rows;
}

PlanSketch& PlanSketch::Prefix(const std::vector<TokenId>& tokens, int begin, int end, int logits) {
  for (int position = begin; position < end; ++position)
    AddRow(tokens[position], position, prefix_slot(position), position >= end - logits);
  plan.segments[0].prefix_len = end;
  return *this;
}

PlanSketch& PlanSketch::Forest(int prefix, const std::vector<ForestNode>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<int32_t> chain;
    for (int node = static_cast<int>(i); node >= 0; node = nodes[node].parent)
      chain.push_back(scratch_slot(node));
    plan.chain.insert(plan.chain.end(), chain.rbegin(), chain.rend());
    AddRow(nodes[i].token, prefix + static_cast<int>(chain.size()) - 1, chain.front(),
           /*logits=*/true);
  }
  plan.segments[0].prefix_len = prefix;
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

}  // namespace coppice::model
