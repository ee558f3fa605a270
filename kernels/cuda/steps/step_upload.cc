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

// At the front of the block.
struct Header {
  DeviceStep steps[kMostKvGroups];
  DeviceWork works[kMostKvGroups];
  DeviceLists lists;
  DeviceLevels levels;
};

// Values of each row that follow from the plan.
struct RowFacts {
  explicit RowFacts(const StepPlan& plan) : segment(plan.rows()), prefix_len(plan.rows()) {
    for (size_t s = 0; s < plan.segments.size(); ++s) {
      const Segment& of = plan.segments[s];
      for (int row = of.first_row; row < of.first_row + of.rows; ++row) {
        segment[row] = static_cast<int32_t>(s);
        prefix_len[row] = plan.prefix_length(row);
      }
    }
    for (const RowNeed& need : plan.needs) need_row.push_back(need.row);
  }

  std::vector<int32_t> segment, prefix_len;  // [rows]
  std::vector<int32_t> need_row;             // [needs]
};

// Rows behind the plan's: token 0 at position 0, a slot of the sink, no context.
DeviceStep PlaceStep(const StepPlan& plan, const RowFacts& facts, int32_t padded_rows,
                     BlockLayout* layout) {
  const size_t rows = padded_rows;
  const auto chain_end = static_cast<int32_t>(plan.chain.size());
  DeviceStep step;
  step.token = layout->Add(plan.token, rows);
  step.position = layout->Add(plan.position, rows);
  step.slot = layout->Add(plan.slot, rows);
  step.segment = layout->Add(facts.segment, rows);
  step.prefix_len = layout->Add(facts.prefix_len, rows);
  step.chain_begin = layout->Add(plan.chain_begin, rows + 1, chain_end);
  step.chain = layout->Add(plan.chain);
  step.table_begin = layout->Add(plan.table_begin);
  step.table = layout->Add(plan.table);
  step.need_row = layout->Add(facts.need_row);
  step.commits = layout->Add(plan.commits);
  step.rows = plan.rows();
  step.needs = static_cast<int32_t>(plan.needs.size());
  step.commit_count = static_cast<int32_t>(plan.commits.size());
  return step;
}

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

absl::Status StepUpload::Upload(const StepPlan& plan, const StepShape& shape, const WorkShape* work,
                                const CudaLists* lists, DeviceStream* stream, LevelTasks* levels) {
  step_ = {};
  work_ = {};
  lists_ = {};
  levels_ = {};
  const RowFacts facts(plan);
  WorkList list;
  const int groups = std::max(1, static_cast<int>(plan.groups.size()));
  COPPICE_CHECK(groups <= kMostKvGroups);
  std::vector<std::vector<int32_t>> chains;  // [groups]; empty: that of the list
  if (work != nullptr) {
    const bool places = levels != nullptr && levels->has_rows_to_place();
    list = MakeWorkList(plan, *work, /*shared_chains=*/places);
    if (places) levels->AddMasks(list);
    COPPICE_RETURN_IF_ERROR(Grow(list, stream));
    if (!plan.groups.empty()) {
      const std::vector<int32_t> origins = OriginsOf(plan, list.chain);
      for (int g = 0; g < groups; ++g) chains.push_back(SlotsOf(plan, g, list.chain, origins));
    }
  }
  COPPICE_RETURN_IF_ERROR(block_.Upload(stream, kWhat, [&](BlockLayout* layout) {
    Header* const header = layout->Reserve<Header>(1);
    Header placed;
    DeviceStep& step = placed.steps[0];
    DeviceWork& work_of_step = placed.works[0];
    step = PlaceStep(plan, facts, shape.rows, layout);
    if (work != nullptr) work_of_step = PlaceWork(list, layout);
    work_of_step.partials = partials_.floats();
    work_of_step.counters = static_cast<uint32_t*>(counters_.data());
    for (int g = 0; g < static_cast<int>(plan.groups.size()); ++g) {
      placed.steps[g] = step;
      placed.works[g] = work_of_step;
      placed.steps[g].slot = layout->Add(plan.slot_of(g), shape.rows);
      placed.steps[g].chain = layout->Add(plan.chain_of(g));
      placed.steps[g].table = layout->Add(plan.table_of(g));
      if (work != nullptr) placed.works[g].chain = layout->Add(chains[g]);
    }
    if (lists != nullptr) placed.lists = lists->Place(layout);
    if (levels != nullptr) placed.levels = levels->Place(layout);
    if (header != nullptr) *header = placed;
  }));
  if (stays_) COPPICE_RETURN_IF_ERROR(UploadHeader(stream));
  const auto* header = static_cast<const Header*>(stays_ ? header_.data() : block_.device());
  step_ = {header->steps, shape.rows, shape.needs};
  work_.work = header->works;
  if (lists != nullptr) lists_ = lists->View(&header->lists);
  if (levels != nullptr) levels_ = levels->View(&header->levels);
  for (int c = 0; c < kTileClasses; ++c) {
    work_.blocks[c] = list.classes[c].items.empty() ? 0 : work->workers[c];
  }
  return absl::OkStatus();
}

absl::Status StepUpload::UploadHeader(DeviceStream* stream) {
  if (header_.size() == 0) {
    COPPICE_ASSIGN_OR_RETURN(header_, DeviceBuffer::Allocate(sizeof(Header), kWhat));
  }
  return stream->CopyToDevice(header_.data(), block_.host(), sizeof(Header), kWhat);
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
