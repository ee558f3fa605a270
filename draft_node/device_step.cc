// The forests of the draft service that the device grows.
#include <vector>

#include "base/status.h"
#include "draft_node/device_forests.h"
#include "draft_node/draft_service.h"

namespace coppice::draft_node {
namespace {

// Rows of each level, all forests together. False, and nothing has changed, when a level would have
// more than max_rows with this forest.
bool AddRows(const ForestBuilder& builder, int max_rows, std::vector<int>* rows) {
  std::vector<int> with = *rows;
  with.resize(std::max<size_t>(with.size(), builder.depth()));
  for (int level = 0; level < builder.depth(); ++level) {
    with[level] += builder.rows_at(level);
    if (with[level] > max_rows) return false;
  }
  *rows = std::move(with);
  return true;
}

}  // namespace

// Forests that do not fit are grown level by level, in the following forward pass.
absl::Status DraftService::StepOnDevice() {
  std::vector<KeyRows> stepped;
  std::vector<ForestBuilder*> builders;
  std::vector<int> rows;
  for (const Key& key : Turns()) {
    ForestBuilder* const builder = slots_.at(key).builder.get();
    if (builder == nullptr || !builder->GrowsOnDevice(*runner_)) continue;
    if (!AddRows(*builder, options_.max_rows, &rows)) continue;
    int of_forest = 0;
    for (int level = 0; level < builder->depth(); ++level) of_forest += builder->rows_at(level);
    stepped.push_back({key, of_forest});
    builders.push_back(builder);
  }
  if (builders.empty()) return absl::OkStatus();
  const double begin_s = clock_->NowSeconds();
  COPPICE_RETURN_IF_ERROR(SubmitForests(builders, runner_));
  runner_->WaitForHead();
  const double head_begin_s = clock_->NowSeconds();
  if (last_end_s_ < options_.announce_within_s) Announce(stepped);
  const auto grown = WaitForForests(builders, runner_);
  threads_->Wait();  // until the announcement is sent
  COPPICE_RETURN_IF_ERROR(grown.status());
  const double model_s = clock_->NowSeconds() - begin_s;
  ShareEnergy(stepped, {});
  for (size_t i = 0; i < stepped.size(); ++i) {
    const Key& key = stepped[i].key;
    Slot& slot = slots_.at(key);
    slot.model_s += model_s;
    if ((*grown)[i].ok()) {
      Reply(key, &slot);
    } else {
      FailLater(key, (*grown)[i]);
    }
  }
  last_end_s_ = clock_->NowSeconds() - head_begin_s;
  return absl::OkStatus();
}

}  // namespace coppice::draft_node
