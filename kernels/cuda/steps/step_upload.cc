#include "kernels/cuda/steps/step_upload.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the plan of a step";
constexpr char kMergingName[] = "partial results of attention";
constexpr size_t kLeastPartials = size_t{1} << 20, kLeastCounters = size_t{64} << 10;  // bytes

// Where the slots of a work list come from: the entry of the plan's chain, or, of blocks that no
// chain has, ~(entry of its table).
std::vector<int32_t> OriginsOf(const StepPlan& plan, const std::vector<int32_t>& slots) {
  absl::flat_hash_map<int32_t, int32_t> of_slot, of_block;
  for (size_t i = 0; i < plan.chain.size(); ++i)
    of_slot.try_emplace(plan.chain[i], static_cast<int32_t>(i));
  std::vector<int32_t> origins;
  for (const int32_t slot : slots) {
    const auto found = of_slot.find(slot);
    if (found != of_slot.end()) {
      origins.push_back(found->second);
      continue;
    }
    if (of_block.empty()) {
      for (size_t i = 0; i < plan.table.size(); ++i)
        of_block.try_emplace(plan.table[i], ~static_cast<int32_t>(i));
    }
    origins.push_back(of_block.at(slot / kBlockSize));
  }
  return origins;
}

// The slots of a work list as a group of layers has them.
std::vector<int32_t> SlotsOf(const StepPlan& plan, int group, const std::vector<int32_t>& slots,
                             const std::vector<int32_t>& origins) {
  std::vector<int32_t> mapped(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    const int32_t origin = origins[i];
    mapped[i] = origin >= 0 ? plan.chain_of(group)[origin]
                            : plan.table_of(group)[~origin] * kBlockSize + slots[i] % kBlockSize;
  }
  return mapped;
}

DeviceWork PlaceWork(const WorkList& list, BlockLayout* layout) {
  DeviceWork work;
  for (int c = 0; c < kTileClasses; ++c) {
    const WorkList::OfClass& of = list.classes[c];
    work.classes[c].items = layout->Add(ItemsByWorker(of));
    work.classes[c].workers = static_cast<int32_t>(of.worker_begin.size()) - 1;
    work.classes[c].count = static_cast<int32_t>(of.items.size());
  }
  work.rows = layout->Add(list.rows);
  work.chain = layout->Add(list.chain);
  work.chain_position = layout->Add(list.chain_position);
  work.masks = layout->Add(list.masks);
  return work;
}

// Twice what is asked for, so that it seldom grows.
absl::Status GrowTo(size_t bytes, size_t least, DeviceBuffer* buffer, bool* grown) {
  *grown = buffer->size() < bytes || buffer->size() == 0;
  if (!*grown) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(*buffer,
                           DeviceBuffer::Allocate(std::max(2 * bytes, least), kMergingName));
  return absl::OkStatus();
}

}  // namespace

StepUpload::RowFacts StepUpload::FactsOf(const StepPlan& plan) {
  RowFacts facts;
  facts.segment.resize(plan.rows());
  facts.prefix_len.resize(plan.rows());
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const Segment& of = plan.segments[s];
    for (int row = of.first_row; row < of.first_row + of.rows; ++row) {
      facts.segment[row] = static_cast<int32_t>(s);
      facts.prefix_len[row] = plan.prefix_length(row);
    }
  }
  for (const RowNeed& need : plan.needs) facts.need_row.push_back(need.row);
  return facts;
}

DeviceStep StepUpload::PlaceStep(BlockLayout* layout) const {
  const StepPlan& plan = *staged_.plan;
  const RowFacts& facts = staged_.facts;
  const size_t rows = staged_.shape.rows;
  const auto chain_end = static_cast<int32_t>(plan.chain.size());
  DeviceStep step;
  step.token = layout->Add(plan.token, rows);
  step.position = layout->Add(plan.rotation(), rows);
  step.slot = layout->Add(plan.slot, rows);
  step.segment = layout->Add(facts.segment, rows);
  step.prefix_len = layout->Add(facts.prefix_len, rows);
  step.chain_begin = layout->Add(plan.chain_begin, rows + 1, chain_end);
  step.chain = layout->Add(plan.chain);
  step.table_begin = layout->Add(plan.table_begin);
  step.table = layout->Add(plan.table);
  step.need_row = layout->Add(facts.need_row);
  step.commits = layout->Add(plan.commits);
  step.state = layout->Add(plan.state);
  step.states = layout->Add(plan.states);
  step.rows = plan.rows();
  step.needs = static_cast<int32_t>(plan.needs.size());
  step.commit_count = static_cast<int32_t>(plan.commits.size());
  return step;
}

absl::Status StepUpload::Upload(const StepPlan& plan, const StepShape& shape, const WorkShape* work,
                                const CudaLists* lists, DeviceStream* stream, LevelTasks* levels) {
  COPPICE_RETURN_IF_ERROR(Stage(plan, shape, work, lists, stream, levels));
  COPPICE_RETURN_IF_ERROR(block_.Upload(stream, kWhat, [&](BlockLayout* layout) {
    StepHeader* const header = layout->Reserve<StepHeader>(1);
    const StepHeader placed = Place(layout);
    if (header != nullptr) *header = placed;
  }));
  if (stays_) COPPICE_RETURN_IF_ERROR(UploadHeader(stream));
  Bind(static_cast<const StepHeader*>(stays_ ? header_.data() : block_.device()));
  return absl::OkStatus();
}

absl::Status StepUpload::Stage(const StepPlan& plan, const StepShape& shape, const WorkShape* work,
                               const CudaLists* lists, DeviceStream* stream, LevelTasks* levels) {
  step_ = {};
  work_ = {};
  lists_ = {};
  levels_ = {};
  staged_ = {};
  staged_.plan = &plan;
  staged_.shape = shape;
  staged_.lists = lists;
  staged_.levels = levels;
  staged_.facts = FactsOf(plan);
  const int groups = static_cast<int>(plan.groups.size());
  COPPICE_CHECK(groups <= kMostKvGroups);
  if (work == nullptr) return absl::OkStatus();
  staged_.work = *work;
  const bool places = levels != nullptr && levels->has_rows_to_place();
  WorkList& list = staged_.list;
  list = MakeWorkList(plan, *work, /*shared_chains=*/places);
  if (places) levels->AddMasks(list);
  COPPICE_RETURN_IF_ERROR(Grow(list, stream));
  if (groups == 0) return absl::OkStatus();
  const std::vector<int32_t> origins = OriginsOf(plan, list.chain);
  for (int g = 0; g < groups; ++g) staged_.chains.push_back(SlotsOf(plan, g, list.chain, origins));
  return absl::OkStatus();
}

StepHeader StepUpload::Place(BlockLayout* layout) const {
  const StepPlan& plan = *staged_.plan;
  StepHeader placed;
  DeviceStep& step = placed.steps[0];
  DeviceWork& work = placed.works[0];
  step = PlaceStep(layout);
  if (staged_.work) work = PlaceWork(staged_.list, layout);
  work.partials = partials_.floats();
  work.counters = static_cast<uint32_t*>(counters_.data());
  for (int g = 0; g < static_cast<int>(plan.groups.size()); ++g) {
    placed.steps[g] = step;
    placed.works[g] = work;
    placed.steps[g].slot = layout->Add(plan.slot_of(g), staged_.shape.rows);
    placed.steps[g].chain = layout->Add(plan.chain_of(g));
    placed.steps[g].table = layout->Add(plan.table_of(g));
    if (staged_.work) placed.works[g].chain = layout->Add(staged_.chains[g]);
  }
  if (staged_.lists != nullptr) placed.lists = staged_.lists->Place(layout);
  if (staged_.levels != nullptr) placed.levels = staged_.levels->Place(layout);
  return placed;
}

void StepUpload::Bind(const StepHeader* header) {
  step_ = {header->steps, staged_.shape.rows, staged_.shape.needs};
  work_.work = header->works;
  if (staged_.lists != nullptr) lists_ = staged_.lists->View(&header->lists);
  if (staged_.levels != nullptr) levels_ = staged_.levels->View(&header->levels);
  for (int c = 0; c < kTileClasses; ++c) {
    work_.blocks[c] = staged_.list.classes[c].items.empty() ? 0 : staged_.work->workers[c];
  }
}

absl::Status StepUpload::UploadHeader(DeviceStream* stream) {
  if (header_.size() == 0) {
    COPPICE_ASSIGN_OR_RETURN(header_, DeviceBuffer::Allocate(sizeof(StepHeader), kWhat));
  }
  return stream->CopyToDevice(header_.data(), block_.host(), sizeof(StepHeader), kWhat);
}

absl::Status StepUpload::Grow(const WorkList& list, DeviceStream* stream) {
  bool grown = false;
  COPPICE_RETURN_IF_ERROR(
      GrowTo(list.partial_floats * sizeof(float), kLeastPartials, &partials_, &grown));
  COPPICE_RETURN_IF_ERROR(
      GrowTo(list.merges * sizeof(uint32_t), kLeastCounters, &counters_, &grown));
  // Zero before the first launch; launches leave them zero.
  if (!grown) return absl::OkStatus();
  return stream->FillZero(counters_.data(), counters_.size(), kMergingName);
}

}  // namespace coppice::kernels::cuda
