#include "model/memory_traffic.h"

#include <algorithm>
#include <array>
#include <climits>
#include <map>

#include "absl/types/span.h"
#include "base/status.h"

namespace coppice::model {
namespace {

size_t BytesOf(const std::unique_ptr<kernels::Weight>& weight) {
  return weight == nullptr ? 0 : weight->bytes;
}

}  // namespace

ReadSizes SizesOf(const TransformerParts& parts) {
  const TransformerWeights& weights = parts.weights;
  ReadSizes sizes;
  sizes.only_stores = parts.config.states.use == TargetStates::Use::kContext;
  for (const LayerWeights& w : weights.layers) {
    sizes.last_rest = w.bytes_after() + (sizes.only_stores ? sizes.last_rest : 0);
    sizes.layers += w.bytes_before_attention() + w.bytes_after();
    sizes.last_has_experts = w.router != nullptr;
    if (w.router == nullptr) continue;
    ++sizes.expert_layers;
    sizes.expert = std::max<uint64_t>(sizes.expert, w.bytes_of_expert());
  }
  sizes.experts = parts.config.experts.count;
  sizes.experts_of_row = parts.config.experts.chosen;
  sizes.layers += BytesOf(weights.project_in) + parts.fusion.bytes;
  sizes.head = BytesOf(weights.final_norm) + BytesOf(weights.project_out) + weights.head().bytes +
               BytesOf(weights.scatter);
  sizes.embedding_row = weights.embedding->bytes /
                        static_cast<uint64_t>(std::max<int64_t>(1, weights.embedding->rows));
  for (const LayerParts& layer : parts.config.layers) sizes.windows.push_back(layer.window);
  sizes.kv_token = parts.kv_layer_bytes();
  return sizes;
}

absl::StatusOr<ReadSizes> SumOverRanks(const ReadSizes& mine, comm::Communicator* communicator) {
  // Sums of 0 and numbers below 2^16 are exact in f32.
  constexpr int kDigits = 4, kFields = 5, kWords = kDigits * kFields;
  constexpr uint64_t kBase = 1 << 16;
  std::vector<float> words(communicator->size() * kWords);
  const auto fields = [](ReadSizes* sizes) {
    return std::array<uint64_t*, kFields>{&sizes->layers, &sizes->last_rest, &sizes->head,
                                          &sizes->kv_token, &sizes->expert};
  };
  ReadSizes sum = mine;
  float* out = &words[communicator->rank() * kWords];
  for (const uint64_t* field : fields(&sum)) {
    uint64_t rest = *field;
    for (int digit = 0; digit < kDigits; ++digit, rest /= kBase)
      *out++ = static_cast<float>(rest % kBase);
  }
  COPPICE_RETURN_IF_ERROR(communicator->AllReduceSum(absl::MakeSpan(words)));
  for (uint64_t* field : fields(&sum)) *field = 0;
  const float* in = words.data();
  for (int rank = 0; rank < communicator->size(); ++rank) {
    for (uint64_t* field : fields(&sum)) {
      uint64_t weight = 1;
      for (int digit = 0; digit < kDigits; ++digit, weight *= kBase)
        *field += static_cast<uint64_t>(*in++) * weight;
    }
  }
  return sum;
}

void ReadCounter::Add(const StepPlan& plan) {
  if (plan.rows() == 0) return;
  const bool needs = !plan.needs.empty();
  const uint64_t expert_layers = sizes_.expert_layers - (!needs && sizes_.last_has_experts ? 1 : 0);
  const uint64_t experts = std::min<uint64_t>(sizes_.experts, plan.rows() * sizes_.experts_of_row);
  const uint64_t embedded = sizes_.only_stores && !needs ? 0 : plan.rows();
  total_.weights +=
      sizes_.layers + embedded * sizes_.embedding_row + expert_layers * experts * sizes_.expert;
  if (needs) {
    total_.weights += sizes_.head;
  } else {
    total_.weights -= sizes_.last_rest;
  }
  seen_by_.clear();
  for (const Segment& segment : plan.segments) seen_by_.push_back(SeenBy(plan, segment));
  const PrefixOrder order = OrderByPrefix(plan);
  const size_t without = sizes_.only_stores ? sizes_.windows.size() : 1;  // layers, without needs
  const size_t layers = sizes_.windows.size() - (needs ? 0 : without);
  std::map<int, uint64_t> tokens;  // by window
  for (size_t layer = 0; layer < layers; ++layer) {
    const auto [found, added] = tokens.try_emplace(sizes_.windows[layer]);
    if (added) found->second = TokensOf(plan, order, found->first);
    total_.kv += found->second * sizes_.kv_token;
  }
}

ReadCounter::Seen ReadCounter::SeenBy(const StepPlan& plan, const Segment& segment) {
  const uint32_t mark = NextMark();
  Seen seen = {.shortest = INT_MAX};
  for (int row = segment.first_row; row < segment.first_row + segment.rows; ++row) {
    seen.prefix = std::max(seen.prefix, plan.prefix_length(row));
    seen.shortest = std::min(seen.shortest, plan.position[row] + 1);
    for (int i = plan.chain_begin[row]; i < plan.chain_begin[row + 1]; ++i) {
      const size_t slot = plan.chain[i];
      if (slot >= slots_.size()) slots_.resize(std::max(slot + 1, 2 * slots_.size()));
      seen.chains += slots_[slot] != mark;
      slots_[slot] = mark;
    }
  }
  return seen;
}

uint64_t ReadCounter::TokensOf(const StepPlan& plan, const PrefixOrder& order, int window) {
  const uint32_t mark = NextMark();
  uint64_t tokens = 0;
  for (size_t i = 0; i < order.segments.size(); ++i) {
    const int32_t s = order.segments[i];
    const Seen& seen = seen_by_[s];
    // Positions before the window of the first row, which no row sees.
    const int hidden = window == 0 ? 0 : std::max(0, std::min(seen.prefix, seen.shortest - window));
    const int after = i + 1 < order.common.size() ? order.common[i + 1] : 0;
    const int shared = std::min(std::max(order.common[i], after), seen.prefix / kBlockSize);
    tokens +=
        seen.chains + seen.prefix - std::min(seen.prefix, std::max(hidden, shared * kBlockSize));
    for (int b = hidden / kBlockSize; b < shared; ++b) {
      const size_t block = plan.table[plan.table_begin[s] + b];
      if (block >= blocks_.size()) blocks_.resize(std::max(block + 1, 2 * blocks_.size()));
      CountedBlock& counted = blocks_[block];
      const int begin = std::max(0, hidden - b * kBlockSize);
      const int end = counted.mark == mark ? counted.begin : kBlockSize;
      if (begin < end) tokens += end - begin;
      counted = {mark, std::min(begin, end)};
    }
  }
  return tokens;
}

uint32_t ReadCounter::NextMark() {
  if (++mark_ == 0) {  // after 2^32 of them
    slots_.assign(slots_.size(), 0);
    blocks_.assign(blocks_.size(), {});
    mark_ = 1;
  }
  return mark_;
}

}  // namespace coppice::model
