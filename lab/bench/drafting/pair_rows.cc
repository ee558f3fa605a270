#include "lab/bench/drafting/pair_rows.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "decoding/drafter.h"
#include "sampling/rng.h"

namespace coppice::lab {
namespace {

constexpr size_t kChunk = 256;  // prompt tokens of a step

absl::StatusOr<std::unique_ptr<model::ModelRunner>> LoadModel(const std::string& dir,
                                                              comm::Communicator* single) {
  model::ModelRunnerOptions options;
  options.dir = dir;
  options.threads = 1;
  options.kv_bytes = int64_t{1} << 30;
  return model::ModelRunner::Load(options, single);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelPairRows>> ModelPairRows::Load(const std::string& target_dir,
                                                                   const std::string& draft_dir) {
  auto rows = std::make_unique<ModelPairRows>();
  rows->single_ = comm::MakeSingleCommunicator();
  COPPICE_ASSIGN_OR_RETURN(rows->target_.runner, LoadModel(target_dir, rows->single_.get()));
  COPPICE_ASSIGN_OR_RETURN(rows->draft_.runner, LoadModel(draft_dir, rows->single_.get()));
  return rows;
}

absl::Status ModelPairRows::Begin(const std::vector<TokenId>& prompt,
                                  const decoding::DecodingParams& params) {
  params_ = params;
  paths_.clear();
  target_rows_.clear();
  draft_rows_.clear();
  paths_[sampling::kRootHash] = {0, prompt.back(), 0};
  COPPICE_RETURN_IF_ERROR(Read(prompt, &target_));
  return Read(prompt, &draft_);
}

absl::Status ModelPairRows::Read(const std::vector<TokenId>& prompt, Model* model) {
  model::BlockManager* blocks = model->runner->blocks();
  if (model->sequence >= 0) blocks->Close(model->sequence);
  blocks->EndRound();
  model->kv.clear();
  int cached = 0;
  model->sequence = blocks->Open(prompt, &cached);
  const auto rest = absl::MakeConstSpan(prompt).subspan(cached, prompt.size() - 1 - cached);
  for (size_t begin = 0; begin < rest.size(); begin += kChunk) {
    const auto chunk = rest.subspan(begin, kChunk);
    model::StepBuilder step = model->runner->NewStep();
    COPPICE_ASSIGN_OR_RETURN(const auto slots, blocks->AppendPrefix(model->sequence, chunk));
    step.AddPrefixRows(model->sequence, chunk, slots);
    COPPICE_RETURN_IF_ERROR(model->runner->Submit(std::move(step)));
    COPPICE_RETURN_IF_ERROR(model->runner->Wait().status());
  }
  return absl::OkStatus();
}

void ModelPairRows::Name(uint64_t path, uint64_t parent, TokenId token) {
  if (paths_.contains(path)) return;
  const int length = paths_.at(parent).length + 1;
  paths_[path] = {parent, token, length};
}

absl::Span<const float> ModelPairRows::Row(uint64_t path, Model* model) {
  const Path& named = paths_.at(path);
  model::KvNode parent = model::kPrefixEnd;
  if (path != sampling::kRootHash) {
    if (!model->kv.contains(named.parent)) {
      if (model == &draft_) Draft(named.parent);
      if (model == &target_) Target(named.parent);
    }
    parent = model->kv.at(named.parent);
  }
  model::StepBuilder step = model->runner->NewStep();
  const auto node = model->runner->blocks()->AddNode(model->sequence, parent, named.token);
  COPPICE_CHECK_MSG(node.ok(), node.status().ToString().c_str());
  model->kv[path] = *node;
  const int need = step.AddNodeRow(model->sequence, *node, named.token, RowNeed());
  const absl::Status submitted = model->runner->Submit(std::move(step));
  COPPICE_CHECK_MSG(submitted.ok(), submitted.ToString().c_str());
  const auto rows = model->runner->Wait();
  COPPICE_CHECK_MSG(rows.ok(), rows.status().ToString().c_str());
  return (*rows)->Whole(need);
}

absl::Span<const float> ModelPairRows::Target(uint64_t path) {
  const auto found = target_rows_.find(path);
  if (found != target_rows_.end()) return found->second;
  const absl::Span<const float> row = Row(path, &target_);
  return target_rows_[path] = {row.begin(), row.end()};
}

const sampling::Distribution& ModelPairRows::Draft(uint64_t path) {
  const auto found = draft_rows_.find(path);
  if (found != draft_rows_.end()) return found->second;
  const absl::Span<const float> row = Row(path, &draft_);
  return draft_rows_[path] = decoding::DraftRow(row, params_, paths_.at(path).length);
}

}  // namespace coppice::lab
