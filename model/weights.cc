#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "model/draft_vocabulary.h"
#include "model/matrix_stack.h"
#include "model/target_states.h"

namespace coppice::model {
namespace {

// A tensor of the checkpoint: its name without ".weight" or ".bias", its rows (or columns, if
// row-parallel), and which of them this rank holds.
struct Shard {
  std::string name;
  int64_t size = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// Parts that are stacked in one tensor of the checkpoint, if it has that name.
void Stack(const std::string& name, std::vector<Shard>* parts) {
  int64_t rows = 0;
  for (Shard& part : *parts) {
    part.name = name;
    part.begin += rows;
    part.end += rows;
    rows += part.size;
  }
  for (Shard& part : *parts) part.size = rows;
}

class Loader {
 public:
  Loader(const WeightsRequest& request, Checkpoint* checkpoint, kernels::Backend* backend)
      : request_(request),
        config_(*request.config),
        names_(request.config->names),
        checkpoint_(checkpoint),
        backend_(backend) {
    d_ = config_.hidden_size;
    for (const LayerParts& layer : config_.layers)
      steps_ += layer.experts ? 3 + 2 * config_.experts.count : 4;
    steps_ += (config_.tied_head ? 1 : 2) + (config_.learned_positions() ? 1 : 0) +
              (config_.projects_embedding() ? 2 : 0);
  }

  absl::StatusOr<TransformerWeights> Load() {
    COPPICE_RETURN_IF_ERROR(CheckJoiningTensors(config_, checkpoint_));
    COPPICE_ASSIGN_OR_RETURN(const std::vector<TokenId> draft_vocabulary,
                             ReadDraftVocabulary(config_, checkpoint_));
    const Shard vocab{std::string(names_.embedding), config_.vocab_size, plan().vocab.begin,
                      plan().vocab.end};
    COPPICE_ASSIGN_OR_RETURN(weights_.embedding, Vocabulary(vocab));
    COPPICE_RETURN_IF_ERROR(LoadPositionsAndProjections());
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      COPPICE_ASSIGN_OR_RETURN(
          LayerWeights loaded,
          LoadLayer(absl::StrCat(names_.layers, layer, "."), config_.layers[layer].experts));
      weights_.layers.push_back(std::move(loaded));
    }
    if (config_.norm_place != NormPlace::kAfterSum) {
      COPPICE_ASSIGN_OR_RETURN(weights_.final_norm,
                               Gain(names_.final_norm, d_, config_.logit_scale));
    }
    if (!draft_vocabulary.empty()) {
      COPPICE_RETURN_IF_ERROR(LoadDraftVocabulary(draft_vocabulary));
    } else if (!config_.tied_head) {
      Shard head = vocab;
      head.name = std::string(names_.head);
      COPPICE_ASSIGN_OR_RETURN(weights_.own_head, Vocabulary(head));
    }
    COPPICE_RETURN_IF_ERROR(MarkovBias::Check(config_, checkpoint_));
    if (backend_ != nullptr) {
      COPPICE_ASSIGN_OR_RETURN(weights_.markov, MarkovBias::Load(config_, checkpoint_));
    }
    return std::move(weights_);
  }

 private:
  const ShardPlan& plan() const { return request_.plan; }

  // Every rank has these whole.
  absl::Status LoadPositionsAndProjections() {
    const int64_t e = config_.embedding_size;
    const auto whole = [&](absl::string_view name, int64_t rows, int64_t columns) {
      return ColumnParallel({{std::string(name), rows, 0, rows}}, FineDType(request_.dtype),
                            /*has_bias=*/false, columns);
    };
    if (config_.learned_positions()) {
      COPPICE_ASSIGN_OR_RETURN(weights_.positions,
                               whole(names_.positions, config_.position_rows(), d_));
    }
    if (!config_.projects_embedding()) return absl::OkStatus();
    COPPICE_ASSIGN_OR_RETURN(weights_.project_in, whole(names_.project_in, d_, e));
    COPPICE_ASSIGN_OR_RETURN(weights_.project_out, whole(names_.project_out, e, d_));
    return absl::OkStatus();
  }

  absl::StatusOr<LayerWeights> LoadLayer(const std::string& prefix, bool layer_has_experts) {
    LayerWeights layer;
    const auto name = [&](absl::string_view part) { return absl::StrCat(prefix, part); };
    if (config_.has_in_norms()) {
      COPPICE_ASSIGN_OR_RETURN(layer.attention_norm, Gain(name(names_.attention_norm), d_));
      COPPICE_ASSIGN_OR_RETURN(layer.mlp_norm, Gain(name(names_.mlp_norm), d_));
    }
    if (config_.has_out_norms()) {
      COPPICE_ASSIGN_OR_RETURN(layer.attention_out_norm, Gain(name(names_.attention_out_norm), d_));
      COPPICE_ASSIGN_OR_RETURN(layer.mlp_out_norm, Gain(name(names_.mlp_out_norm), d_));
    }
    if (config_.qk_norm) {
      const int64_t head = config_.head_dim;
      const int64_t q = config_.whole_qk_norm ? config_.num_heads * head : head;
      const int64_t k = config_.whole_qk_norm ? config_.num_kv_heads * head : head;
      COPPICE_ASSIGN_OR_RETURN(layer.q_norm, Gain(name(names_.q_norm), q));
      COPPICE_ASSIGN_OR_RETURN(layer.k_norm, Gain(name(names_.k_norm), k));
    }
    if (config_.begins_with_state()) {
      COPPICE_ASSIGN_OR_RETURN(layer.state_norm, Gain(name(names_.state_norm), d_));
    }
    COPPICE_RETURN_IF_ERROR(LoadAttention(prefix, &layer));
    if (layer_has_experts) {
      COPPICE_RETURN_IF_ERROR(LoadExperts(prefix, &layer));
    } else {
      COPPICE_RETURN_IF_ERROR(LoadMlp(prefix, &layer));
    }
    return layer;
  }

  absl::Status LoadAttention(const std::string& prefix, LayerWeights* layer) {
    const int64_t head = config_.head_dim;
    const int64_t q_rows = config_.num_heads * head, kv_rows = config_.num_kv_heads * head;
    const Range q = plan().q_heads, kv = plan().kv_heads;
    std::vector<Shard> shards = {
        {absl::StrCat(prefix, names_.q), q_rows, q.begin * head, q.end * head},
        {absl::StrCat(prefix, names_.k), kv_rows, kv.begin * head, kv.end * head},
        {absl::StrCat(prefix, names_.v), kv_rows, kv.begin * head, kv.end * head}};
    if (!names_.qkv.empty()) Stack(absl::StrCat(prefix, names_.qkv), &shards);
    if (names_.qkv_by_head) shards = ByHead(shards[0].name, q);
    COPPICE_ASSIGN_OR_RETURN(
        layer->qkv, ColumnParallel(shards, FineDType(request_.dtype), config_.attention_bias,
                                   config_.qkv_inputs()));
    const Shard o{absl::StrCat(prefix, names_.output), q_rows, q.begin * head, q.end * head};
    COPPICE_ASSIGN_OR_RETURN(layer->output, RowParallel(o, config_.output_bias));
    return absl::OkStatus();
  }

  // q of the heads, then k, then v, of a tensor that has the three of each head together.
  std::vector<Shard> ByHead(const std::string& name, Range heads) const {
    const int64_t rows = config_.head_dim;
    std::vector<Shard> shards;
    for (int part = 0; part < 3; ++part) {
      for (int64_t head = heads.begin; head < heads.end; ++head) {
        const int64_t begin = (3 * head + part) * rows;
        shards.push_back({name, 3 * config_.num_heads * rows, begin, begin + rows});
      }
    }
    return shards;
  }

  absl::Status LoadMlp(const std::string& prefix, LayerWeights* layer) {
    const Range f = plan().intermediate;
    const auto shard = [&](absl::string_view name) {
      return Shard{absl::StrCat(prefix, name), config_.intermediate_size, f.begin, f.end};
    };
    std::vector<Shard> shards = {shard(names_.up)};
    if (config_.gated_mlp) shards = {shard(names_.gate), shard(names_.up)};
    if (!names_.gate_up.empty()) Stack(absl::StrCat(prefix, names_.gate_up), &shards);
    COPPICE_ASSIGN_OR_RETURN(layer->gate_up,
                             ColumnParallel(shards, request_.dtype, config_.mlp_bias, d_));
    COPPICE_ASSIGN_OR_RETURN(layer->down, RowParallel(shard(names_.down), config_.mlp_bias));
    return absl::OkStatus();
  }

  absl::Status LoadExperts(const std::string& prefix, LayerWeights* layer) {
    const Range g = plan().expert;
    const int count = config_.experts.count;
    COPPICE_ASSIGN_OR_RETURN(
        layer->router, ColumnParallel({{absl::StrCat(prefix, names_.router), count, 0, count}},
                                      request_.router_dtype, /*has_bias=*/false, d_));
    for (int expert = 0; expert < count; ++expert) {
      const auto shard = [&](absl::string_view name) {
        return Shard{absl::StrCat(prefix, names_.experts, expert, ".", name), config_.experts.size,
                     g.begin, g.end};
      };
      COPPICE_ASSIGN_OR_RETURN(auto gate_up,
                               ColumnParallel({shard(names_.expert_gate), shard(names_.expert_up)},
                                              request_.dtype, /*has_bias=*/false, d_));
      COPPICE_ASSIGN_OR_RETURN(auto down,
                               RowParallel(shard(names_.expert_down), /*has_bias=*/false));
      layer->expert_gate_up.push_back(std::move(gate_up));
      layer->expert_down.push_back(std::move(down));
    }
    return absl::OkStatus();
  }

  // The rows whose ids this rank holds.
  absl::Status LoadDraftVocabulary(const std::vector<TokenId>& ids) {
    const Range vocab = plan().vocab;
    const auto begin = std::lower_bound(ids.begin(), ids.end(), vocab.begin);
    const auto end = std::lower_bound(begin, ids.end(), vocab.end);
    if (begin == end) {
      return checkpoint_->Error(
          "d2t", absl::StrCat("no row is an id of rank ", request_.rank, ", ", vocab.begin, " to ",
                              vocab.end - 1, ", expected one of each rank"));
    }
    COPPICE_ASSIGN_OR_RETURN(weights_.own_head,
                             Vocabulary({std::string(names_.head), config_.draft_vocab_size,
                                         begin - ids.begin(), end - ids.begin()}));
    if (backend_ == nullptr) return absl::OkStatus();
    std::vector<int32_t> places(begin, end);
    for (int32_t& place : places) place -= vocab.begin;
    COPPICE_ASSIGN_OR_RETURN(weights_.scatter,
                             backend_->PackScatter(std::move(places), vocab.size()));
    weights_.bytes += weights_.scatter->bytes;
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<kernels::Weight>> Vocabulary(const Shard& shard) {
    return ColumnParallel({shard}, FineDType(request_.dtype), /*has_bias=*/false,
                          config_.embedding_size);
  }

  // Without a backend the tensor is only checked.
  absl::StatusOr<kernels::MatrixSource> Matrix(const std::string& name, int64_t rows,
                                               int64_t columns) {
    if (backend_ != nullptr) return checkpoint_->Matrix(name, rows, columns);
    COPPICE_RETURN_IF_ERROR(checkpoint_->CheckMatrix(name, rows, columns));
    return kernels::MatrixSource{};
  }

  // The rows of all shards, stacked: [sum of rows, columns].
  absl::StatusOr<std::unique_ptr<kernels::Weight>> ColumnParallel(const std::vector<Shard>& shards,
                                                                  kernels::DType dtype,
                                                                  bool has_bias, int64_t columns) {
    MatrixStack stack(backend_, dtype, request_.keeps_blocks);
    std::vector<float> bias;
    for (const Shard& shard : shards) {
      COPPICE_ASSIGN_OR_RETURN(const kernels::MatrixSource all,
                               Matrix(shard.name + ".weight", shard.size, columns));
      if (backend_ != nullptr) stack.AddRows(all, shard.begin, shard.end);
      if (!has_bias) continue;
      COPPICE_ASSIGN_OR_RETURN(const std::vector<float> part,
                               Finite(shard.name + ".bias", shard.size, shard.begin, shard.end));
      bias.insert(bias.end(), part.begin(), part.end());
    }
    auto packed = Pack(&stack, std::move(bias));
    for (const Shard& shard : shards) checkpoint_->Release(shard.name + ".weight");
    return Packed(shards[0].name, std::move(packed));
  }

  // The shard's columns of a matrix [d, size]. The sum over ranks must have the bias once. So rank
  // 0 keeps it and the others only check it.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> RowParallel(const Shard& shard, bool has_bias) {
    const std::string name = shard.name + ".weight";
    COPPICE_ASSIGN_OR_RETURN(const kernels::MatrixSource all, Matrix(name, d_, shard.size));
    std::vector<float> bias;
    if (has_bias) {
      COPPICE_ASSIGN_OR_RETURN(bias,
                               Finite(shard.name + ".bias", d_, 0, request_.rank == 0 ? d_ : 0));
    }
    MatrixStack stack(backend_, request_.dtype, request_.keeps_blocks);
    if (backend_ != nullptr) stack.AddColumns(all, shard.begin, shard.end);
    auto packed = Pack(&stack, std::move(bias));
    checkpoint_->Release(name);
    return Packed(name, std::move(packed));
  }

  // Elements [begin, end) of a gain or bias.
  absl::StatusOr<std::vector<float>> Finite(const std::string& name, int64_t size, int64_t begin,
                                            int64_t end) {
    COPPICE_ASSIGN_OR_RETURN(std::vector<float> values,
                             checkpoint_->Vector(name, size, begin, end));
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      return checkpoint_->Error(name, absl::StrCat("element ", begin + i, " is ", values[i],
                                                   ", expected a finite number"));
    }
    return values;
  }

  // Without a backend tensors are only checked.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Pack(MatrixStack* stack,
                                                        std::vector<float> bias) {
    if (backend_ == nullptr) return std::make_unique<kernels::Weight>();
    return stack->Pack(std::move(bias));
  }

  absl::StatusOr<std::unique_ptr<kernels::Weight>> Packed(
      const std::string& name, absl::StatusOr<std::unique_ptr<kernels::Weight>> packed) {
    if (!packed.ok()) {
      return absl::Status(packed.status().code(),
                          absl::StrCat(name, ": ", packed.status().message()));
    }
    if (StopRequested()) return absl::CancelledError("stopped while loading the weights");
    weights_.bytes += (*packed)->bytes;
    ++done_;
    if (request_.progress) request_.progress(static_cast<double>(done_) / steps_);
    return packed;
  }

  // The gain of a norm of `size` values, times `factor`, with its bias.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Gain(absl::string_view name, int64_t size,
                                                        float factor = 1) {
    const auto read = [&](absl::string_view suffix) {
      return Finite(absl::StrCat(name, suffix), size, 0, size);
    };
    COPPICE_ASSIGN_OR_RETURN(std::vector<float> values, read(".weight"));
    for (float& value : values) value = (value + config_.gain_offset) * factor;
    std::vector<float> bias;
    if (config_.norm_bias) {
      COPPICE_ASSIGN_OR_RETURN(bias, read(".bias"));
      for (float& value : bias) value *= factor;
    }
    if (backend_ == nullptr) return std::make_unique<kernels::Weight>();
    COPPICE_ASSIGN_OR_RETURN(auto gain, backend_->PackGain(std::move(values), std::move(bias)));
    weights_.bytes += gain->bytes;
    return gain;
  }

  const WeightsRequest& request_;
  const ModelConfig& config_;
  const TensorNames& names_;
  Checkpoint* checkpoint_;
  kernels::Backend* backend_;
  int64_t d_ = 0;
  int steps_ = 0;
  int done_ = 0;
  TransformerWeights weights_;
};

size_t BytesOf(std::initializer_list<const kernels::Weight*> weights) {
  size_t bytes = 0;
  for (const kernels::Weight* weight : weights) bytes += weight == nullptr ? 0 : weight->bytes;
  return bytes;
}

}  // namespace

size_t LayerWeights::bytes_before_attention() const {
  return BytesOf({attention_norm.get(), state_norm.get(), q_norm.get(), k_norm.get(), qkv.get()});
}

size_t LayerWeights::bytes_after() const {
  return BytesOf({output.get(), attention_out_norm.get(), mlp_norm.get(), gate_up.get(), down.get(),
                  mlp_out_norm.get(), router.get()});
}

size_t LayerWeights::bytes_of_expert() const {
  size_t most = 0;
  for (size_t i = 0; i < expert_down.size(); ++i)
    most = std::max(most, expert_gate_up[i]->bytes + expert_down[i]->bytes);
  return most;
}

absl::StatusOr<TransformerWeights> LoadWeights(const WeightsRequest& request,
                                               Checkpoint* checkpoint, kernels::Backend* backend) {
  return Loader(request, checkpoint, backend).Load();
}

absl::Status CheckTensors(const ModelConfig& config, Checkpoint* checkpoint) {
  WeightsRequest request;
  request.config = &config;
  COPPICE_ASSIGN_OR_RETURN(request.plan, MakeShardPlan(config, /*rank=*/0, /*ranks=*/1));
  return LoadWeights(request, checkpoint, /*backend=*/nullptr).status();
}

}  // namespace coppice::model
