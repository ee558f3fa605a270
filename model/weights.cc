#include "model/weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "model/draft_vocabulary.h"
#include "model/matrix_stack.h"

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

class Loader {
 public:
  Loader(const WeightsRequest& request, Checkpoint* checkpoint, kernels::Backend* backend)
      : request_(request), config_(*request.config), checkpoint_(checkpoint), backend_(backend) {
    d_ = config_.hidden_size;
    steps_ = 4 * config_.num_layers + (config_.tied_head ? 1 : 2);
  }

  absl::StatusOr<TransformerWeights> Load() {
    COPPICE_ASSIGN_OR_RETURN(const std::vector<TokenId> draft_vocabulary,
                             ReadDraftVocabulary(config_, checkpoint_));
    const Shard vocab{"model.embed_tokens", config_.vocab_size, plan().vocab.begin,
                      plan().vocab.end};
    COPPICE_ASSIGN_OR_RETURN(weights_.embedding, Vocabulary(vocab));
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      COPPICE_ASSIGN_OR_RETURN(LayerWeights loaded,
                               LoadLayer(absl::StrCat("model.layers.", layer, ".")));
      weights_.layers.push_back(std::move(loaded));
    }
    COPPICE_ASSIGN_OR_RETURN(weights_.final_norm, Gain("model.norm.weight"));
    if (!draft_vocabulary.empty()) {
      COPPICE_RETURN_IF_ERROR(LoadDraftVocabulary(draft_vocabulary));
    } else if (!config_.tied_head) {
      Shard head = vocab;
      head.name = "lm_head";
      COPPICE_ASSIGN_OR_RETURN(weights_.own_head, Vocabulary(head));
    }
    return std::move(weights_);
  }

 private:
  const ShardPlan& plan() const { return request_.plan; }

  absl::StatusOr<LayerWeights> LoadLayer(const std::string& prefix) {
    LayerWeights layer;
    COPPICE_ASSIGN_OR_RETURN(layer.attention_norm, Gain(prefix + "input_layernorm.weight"));
    COPPICE_RETURN_IF_ERROR(LoadAttention(prefix + "self_attn.", &layer));
    COPPICE_ASSIGN_OR_RETURN(layer.mlp_norm, Gain(prefix + "post_attention_layernorm.weight"));
    COPPICE_RETURN_IF_ERROR(LoadMlp(prefix + "mlp.", &layer));
    return layer;
  }

  absl::Status LoadAttention(const std::string& prefix, LayerWeights* layer) {
    const int64_t head = config_.head_dim;
    const int64_t q_rows = config_.num_heads * head, kv_rows = config_.num_kv_heads * head;
    const Range q = plan().q_heads, kv = plan().kv_heads;
    const std::vector<Shard> shards = {
        {prefix + "q_proj", q_rows, q.begin * head, q.end * head},
        {prefix + "k_proj", kv_rows, kv.begin * head, kv.end * head},
        {prefix + "v_proj", kv_rows, kv.begin * head, kv.end * head}};
    COPPICE_ASSIGN_OR_RETURN(
        layer->qkv, ColumnParallel(shards, FineDType(request_.dtype), config_.attention_bias));
    const Shard o{prefix + "o_proj", q_rows, q.begin * head, q.end * head};
    COPPICE_ASSIGN_OR_RETURN(layer->output, RowParallel(o, config_.output_bias));
    return absl::OkStatus();
  }

  absl::Status LoadMlp(const std::string& prefix, LayerWeights* layer) {
    const Range f = plan().intermediate;
    const std::vector<Shard> shards = {
        {prefix + "gate_proj", config_.intermediate_size, f.begin, f.end},
        {prefix + "up_proj", config_.intermediate_size, f.begin, f.end}};
    COPPICE_ASSIGN_OR_RETURN(layer->gate_up,
                             ColumnParallel(shards, request_.dtype, config_.mlp_bias));
    const Shard down{prefix + "down_proj", config_.intermediate_size, f.begin, f.end};
    COPPICE_ASSIGN_OR_RETURN(layer->down, RowParallel(down, config_.mlp_bias));
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
    COPPICE_ASSIGN_OR_RETURN(
        weights_.own_head,
        Vocabulary({"lm_head", config_.draft_vocab_size, begin - ids.begin(), end - ids.begin()}));
    std::vector<int32_t> places(begin, end);
    for (int32_t& place : places) place -= vocab.begin;
    COPPICE_ASSIGN_OR_RETURN(weights_.scatter,
                             backend_->PackScatter(std::move(places), vocab.size()));
    weights_.bytes += weights_.scatter->bytes;
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<kernels::Weight>> Vocabulary(const Shard& shard) {
    return ColumnParallel({shard}, FineDType(request_.dtype), /*has_bias=*/false);
  }

  // The rows of all shards, stacked: [sum of rows, d].
  absl::StatusOr<std::unique_ptr<kernels::Weight>> ColumnParallel(const std::vector<Shard>& shards,
                                                                  kernels::DType dtype,
                                                                  bool has_bias) {
    MatrixStack stack(backend_, dtype, request_.keeps_blocks);
    std::vector<float> bias;
    for (const Shard& shard : shards) {
      COPPICE_ASSIGN_OR_RETURN(const kernels::MatrixSource all,
                               checkpoint_->Matrix(shard.name + ".weight", shard.size, d_));
      stack.AddRows(all, shard.begin, shard.end);
      if (!has_bias) continue;
      COPPICE_ASSIGN_OR_RETURN(
          const std::vector<float> part,
          checkpoint_->Vector(shard.name + ".bias", shard.size, shard.begin, shard.end));
      bias.insert(bias.end(), part.begin(), part.end());
    }
    auto packed = stack.Pack(std::move(bias));
    for (const Shard& shard : shards) checkpoint_->Release(shard.name + ".weight");
    return Packed(shards[0].name, std::move(packed));
  }

  // The shard's columns of a matrix [d, size]. The sum over ranks must have the bias once. So rank
  // 0 keeps it and the others only check it.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> RowParallel(const Shard& shard, bool has_bias) {
    const std::string name = shard.name + ".weight";
    COPPICE_ASSIGN_OR_RETURN(const kernels::MatrixSource all,
                             checkpoint_->Matrix(name, d_, shard.size));
    std::vector<float> bias;
    if (has_bias) {
      COPPICE_ASSIGN_OR_RETURN(
          bias, checkpoint_->Vector(shard.name + ".bias", d_, 0, request_.rank == 0 ? d_ : 0));
    }
    MatrixStack stack(backend_, request_.dtype, request_.keeps_blocks);
    stack.AddColumns(all, shard.begin, shard.end);
    auto packed = stack.Pack(std::move(bias));
    checkpoint_->Release(name);
    return Packed(name, std::move(packed));
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

  absl::StatusOr<std::unique_ptr<kernels::Weight>> Gain(const std::string& name) {
    COPPICE_ASSIGN_OR_RETURN(std::vector<float> values, checkpoint_->Vector(name, d_, 0, d_));
    COPPICE_ASSIGN_OR_RETURN(auto gain, backend_->PackGain(std::move(values)));
    weights_.bytes += gain->bytes;
    return gain;
  }

  const WeightsRequest& request_;
  const ModelConfig& config_;
  Checkpoint* checkpoint_;
  kernels::Backend* backend_;
  int64_t d_ = 0;
  int steps_ = 0;
  int done_ = 0;
  TransformerWeights weights_;
};

}  // namespace

absl::StatusOr<TransformerWeights> LoadWeights(const WeightsRequest& request,
                                               Checkpoint* checkpoint, kernels::Backend* backend) {
  return Loader(request, checkpoint, backend).Load();
}

}  // namespace coppice::model
