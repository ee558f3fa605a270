#include "model/memory_traffic.h"

#include <algorithm>
#include <array>
#include <climits>

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
  for (const LayerWeights& w : weights.layers) {
    sizes.last_rest = w.bytes_after();
    sizes.layers += w.bytes_before_attention() + sizes.last_rest;
    sizes.last_has_experts = w.router != nullptr;
    if (w.router == nullptr) continue;
    ++sizes.expert_layers;
    sizes.expert = std::max<uint64_t>(sizes.expert, w.bytes_of_expert());
  }
  sizes.experts = parts.config.experts.count;
  sizes.experts_of_row = parts.config.experts.chosen;
  sizes.layers += BytesOf(weights.project_in);
  sizes.head = BytesOf(weights.final_norm) + BytesOf(weights.project_out) + weights.head().bytes +
               BytesOf(weights.scatter);
  sizes.embedding_row = weights.embedding->bytes /
                        static_cast<uint64_t>(std::max<int64_t>(1, weights.embedding->rows));
  for (const LayerParts& layer : parts.config.layers) sizes.windows.push_back(layer.window);
  sizes.kv_token = parts.kv_block_bytes() / kBlockSize / sizes.windows.size();
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
  total_.weights +=
      sizes_.layers + plan.rows() * sizes_.embedding_row + expert_layers * experts * sizes_.expert;
  if (needs) {
    total_.weights += sizes_.head;
  } else {
    total_.weights -= sizes_.last_rest;
  }
  const size_t layers = sizes_.windows.size() - (needs ? 0 : 1);
  uint64_t tokens = 0;
  for (const Segment& segment : plan.segments) tokens += TokensOf(plan, segment, layers);
  total_.kv += tokens * sizes_.kv_token;
}

uint64_t ReadCounter::TokensOf(const StepPlan& plan, const Segment& segment, size_t layers) {
  if (++segment_ == 0) {  // after 2^32 segments
    seen_.assign(seen_.size(), 0);
    segment_ = 1;
  }
  int prefix = 0, shortest = INT_MAX;
  uint64_t in_chains = 0;
  for (int row = segment.first_row; row < segment.first_row + segment.rows; ++row) {
    prefix = std::max(prefix, plan.prefix_length(row));
    shortest = std::min(shortest, plan.position[row] + 1);
    for (int i = plan.chain_begin[row]; i < plan.chain_begin[row + 1]; ++i) {
      const size_t slot = plan.chain[i];
      if (slot >= seen_.size()) seen_.resize(std::max(slot + 1, 2 * seen_.size()));
      in_chains += seen_[slot] != segment_;
      seen_[slot] = segment_;
    }
  }
  const uint64_t all = prefix + in_chains;
  uint64_t tokens = 0;
  for (size_t layer = 0; layer < layers; ++layer) {
    const int window = sizes_.windows[layer];
    // Positions before the window of the first row, which no row sees.
    const int hidden = window == 0 ? 0 : std::max(0, std::min(prefix, shortest - window));
    tokens += all - hidden;
  }
  return tokens;
}

}  // namespace coppice::model
