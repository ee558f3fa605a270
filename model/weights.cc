#include "model/weights.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice {
namespace {

MatrixSource Rows(const MatrixSource& source, int64_t begin, int64_t end) {
  MatrixSource part = source;
  part.data =
      static_cast<const char*>(source.data) + begin * source.row_stride * DTypeSize(source.dtype);
  part.rows = end - begin;
  return part;
}

MatrixSource Columns(const MatrixSource& source, int64_t begin, int64_t end) {
  MatrixSource part = source;
  part.data = static_cast<const char*>(source.data) + begin * DTypeSize(source.dtype);
  part.columns = end - begin;
  return part;
}

// A tensor of the checkpoint: its name without ".weight" or ".bias", full size, and this rank's
// rows.
struct RowShard {
  std::string name;
  int64_t rows = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

class Loader {
 public:
  Loader(const WeightsRequest& request, Checkpoint* checkpoint, Backend* backend)
      : request_(request), config_(*request.config), checkpoint_(checkpoint), backend_(backend) {
    d_ = config_.hidden_size;
    steps_ = 4 * config_.num_layers + (config_.tied_head ? 1 : 2);
  }

  absl::StatusOr<DecoderWeights> Load() {
    const RowShard vocab{"model.embed_tokens", config_.vocab_size, plan().vocab.begin,
                         plan().vocab.end};
    COPPICE_ASSIGN_OR_RETURN(weights_.embedding, ColumnParallel({vocab}));
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      COPPICE_ASSIGN_OR_RETURN(LayerWeights loaded,
                               LoadLayer(absl::StrCat("model.layers.", layer, ".")));
      weights_.layers.push_back(std::move(loaded));
    }
    COPPICE_ASSIGN_OR_RETURN(weights_.final_norm, Whole("model.norm.weight"));
    if (!config_.tied_head) {
      RowShard head = vocab;
      head.name = "lm_head";
      COPPICE_ASSIGN_OR_RETURN(weights_.own_head, ColumnParallel({head}));
    }
    return std::move(weights_);
  }

 private:
  const ShardPlan& plan() const { return request_.plan; }

  absl::StatusOr<LayerWeights> LoadLayer(const std::string& prefix) {
    LayerWeights layer;
    COPPICE_ASSIGN_OR_RETURN(layer.attention_norm, Whole(prefix + "input_layernorm.weight"));
    COPPICE_RETURN_IF_ERROR(LoadAttention(prefix + "self_attn.", &layer));
    COPPICE_ASSIGN_OR_RETURN(layer.mlp_norm, Whole(prefix + "post_attention_layernorm.weight"));
    COPPICE_RETURN_IF_ERROR(LoadMlp(prefix + "mlp.", &layer));
    return layer;
  }

  absl::Status LoadAttention(const std::string& prefix, LayerWeights* layer) {
    const int64_t head = config_.head_dim;
    const int64_t q_rows = config_.num_heads * head, kv_rows = config_.num_kv_heads * head;
    const Range q = plan().q_heads, kv = plan().kv_heads;
    const std::vector<RowShard> shards = {
        {prefix + "q_proj", q_rows, q.begin * head, q.end * head},
        {prefix + "k_proj", kv_rows, kv.begin * head, kv.end * head},
        {prefix + "v_proj", kv_rows, kv.begin * head, kv.end * head}};
    COPPICE_ASSIGN_OR_RETURN(layer->qkv, ColumnParallel(shards));
    if (config_.attention_bias) {
      COPPICE_ASSIGN_OR_RETURN(layer->qkv_bias, StackedBias(shards));
    }
    COPPICE_ASSIGN_OR_RETURN(
        layer->output, RowParallel(prefix + "o_proj.weight", q_rows, q.begin * head, q.end * head));
    if (config_.output_bias) {
      COPPICE_ASSIGN_OR_RETURN(layer->output_bias, FirstRankBias(prefix + "o_proj.bias"));
    }
    return absl::OkStatus();
  }

  absl::Status LoadMlp(const std::string& prefix, LayerWeights* layer) {
    const Range f = plan().intermediate;
    const std::vector<RowShard> shards = {
        {prefix + "gate_proj", config_.intermediate_size, f.begin, f.end},
        {prefix + "up_proj", config_.intermediate_size, f.begin, f.end}};
    COPPICE_ASSIGN_OR_RETURN(layer->gate_up, ColumnParallel(shards));
    if (config_.mlp_bias) {
      COPPICE_ASSIGN_OR_RETURN(layer->gate_up_bias, StackedBias(shards));
    }
    COPPICE_ASSIGN_OR_RETURN(layer->down, RowParallel(prefix + "down_proj.weight",
                                                      config_.intermediate_size, f.begin, f.end));
    if (config_.mlp_bias) {
      COPPICE_ASSIGN_OR_RETURN(layer->down_bias, FirstRankBias(prefix + "down_proj.bias"));
    }
    return absl::OkStatus();
  }

  // The rows of every shard, one below the other: [sum of rows, d].
  absl::StatusOr<std::unique_ptr<PackedMatrix>> ColumnParallel(
      const std::vector<RowShard>& shards) {
    std::vector<MatrixSource> sources;
    for (const RowShard& shard : shards) {
      COPPICE_ASSIGN_OR_RETURN(const MatrixSource all,
                               checkpoint_->Matrix(shard.name + ".weight", shard.rows, d_));
      sources.push_back(Rows(all, shard.begin, shard.end));
    }
    auto packed = sources.size() == 1 ? backend_->Pack(sources[0], request_.dtype)
                                      : backend_->PackStacked(sources, request_.dtype);
    for (const RowShard& shard : shards) checkpoint_->Release(shard.name + ".weight");
    return Packed(shards[0].name, std::move(packed));
  }

  // The columns [begin, end) of a matrix [d, columns].
  absl::StatusOr<std::unique_ptr<PackedMatrix>> RowParallel(const std::string& name,
                                                            int64_t columns, int64_t begin,
                                                            int64_t end) {
    COPPICE_ASSIGN_OR_RETURN(const MatrixSource all, checkpoint_->Matrix(name, d_, columns));
    auto packed = backend_->Pack(Columns(all, begin, end), request_.dtype);
    checkpoint_->Release(name);
    return Packed(name, std::move(packed));
  }

  absl::StatusOr<std::unique_ptr<PackedMatrix>> Packed(
      const std::string& name, absl::StatusOr<std::unique_ptr<PackedMatrix>> packed) {
    if (!packed.ok()) {
      return absl::Status(packed.status().code(),
                          absl::StrCat(name, ": ", packed.status().message()));
    }
    weights_.bytes += (*packed)->bytes;
    ++done_;
    if (request_.progress) request_.progress(static_cast<double>(done_) / steps_);
    return packed;
  }

  absl::StatusOr<std::vector<float>> Part(const std::string& name, int64_t size, int64_t begin,
                                          int64_t end) {
    auto values = checkpoint_->Vector(name, size, begin, end);
    if (values.ok()) weights_.bytes += values->size() * sizeof(float);
    return values;
  }

  absl::StatusOr<std::vector<float>> Whole(const std::string& name) {
    return Part(name, d_, 0, d_);
  }

  absl::StatusOr<std::vector<float>> StackedBias(const std::vector<RowShard>& shards) {
    std::vector<float> stacked;
    for (const RowShard& shard : shards) {
      COPPICE_ASSIGN_OR_RETURN(const std::vector<float> bias,
                               Part(shard.name + ".bias", shard.rows, shard.begin, shard.end));
      stacked.insert(stacked.end(), bias.begin(), bias.end());
    }
    return stacked;
  }

  // Added once in the sum over ranks; the others check it and keep nothing.
  absl::StatusOr<std::vector<float>> FirstRankBias(const std::string& name) {
    return Part(name, d_, 0, request_.rank == 0 ? d_ : 0);
  }

  const WeightsRequest& request_;
  const ModelConfig& config_;
  Checkpoint* checkpoint_;
  Backend* backend_;
  int64_t d_ = 0;
  int steps_ = 0;
  int done_ = 0;
  DecoderWeights weights_;
};

}  // namespace

absl::StatusOr<DecoderWeights> LoadWeights(const WeightsRequest& request, Checkpoint* checkpoint,
                                           Backend* backend) {
  return Loader(request, checkpoint, backend).Load();
}

}  // namespace coppice
