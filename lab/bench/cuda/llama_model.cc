#include "lab/bench/cuda/llama_model.h"

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/runtime/cuda_weights.h"
#include "kernels/rope_table.h"
#include "lab/bench/cuda/device_random.h"
#include "lab/bench/cuda/llama_shape.h"

namespace coppice::bench {
namespace {

using kernels::DType;

constexpr float kWeightSize = 0.03f;

model::ModelConfig ConfigOf(const ModelShape& shape) {
  model::ModelConfig config;
  config.model_type = "llama";
  config.vocab_size = shape.vocabulary;
  config.hidden_size = config.embedding_size = shape.hidden;
  config.intermediate_size = shape.intermediate;
  config.num_layers = shape.layers;
  config.num_heads = shape.q_heads;
  config.num_kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.max_positions = kMaxPositions;
  config.attention_scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  config.ropes = {{kMaxPositions, kernels::PlainFrequencies(shape.head_dim, 500000)}};
  config.layers.resize(shape.layers);
  config.tied_head = shape.tied;
  config.draft_vocab_size = shape.kept;
  if (shape.takes_states) {
    config.states.use = model::TargetStates::Use::kBesideEmbedding;
    config.states.size = kHidden;
  }
  return config;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Create(
    const LlamaOptions& options, kernels::cuda::DeviceStream* stream) {
  std::unique_ptr<LlamaModel> made(new LlamaModel(options, stream));
  COPPICE_RETURN_IF_ERROR(made->Make());
  return made;
}

absl::StatusOr<std::unique_ptr<kernels::Weight>> LlamaModel::Matrix(int64_t rows, int64_t columns) {
  auto weight = std::make_unique<kernels::cuda::CudaWeight>();
  weight->rows = rows;
  weight->columns = columns;
  weight->dtype = DType::kBF16;
  weight->bytes = rows * columns * kValueBytes;
  COPPICE_ASSIGN_OR_RETURN(weight->values,
                           kernels::cuda::DeviceBuffer::Allocate(weight->bytes, "a weight"));
  if (options_.filled) {
    COPPICE_RETURN_IF_ERROR(FillRandom(weight->values.data(), rows * columns, DType::kBF16,
                                       kWeightSize, ++seed_, stream_));
  }
  return weight;
}

absl::StatusOr<std::unique_ptr<kernels::Weight>> LlamaModel::Gain() {
  return backend_->PackGain(std::vector<float>(options_.shape.hidden, 1.0f));
}

absl::Status LlamaModel::Make() {
  kernels::BackendOptions options;
  options.kind = "cuda";
  options.threads = &threads_;
  options.communicator = one_rank_.get();
  options.overlap_launches = options_.overlap_launches;
  options.exact = options_.exact;
  options.tuning_cache = options_.tuning_cache;
  COPPICE_ASSIGN_OR_RETURN(backend_, kernels::MakeBackend(options));
  options.graphs = false;
  COPPICE_ASSIGN_OR_RETURN(op_by_op_, kernels::MakeBackend(options));
  const std::vector<float> values(64, 1.0f);
  const kernels::MatrixSource source = {values.data(), DType::kF32, 8, 8, 8};
  COPPICE_RETURN_IF_ERROR(backend_->Pack({source}, DType::kBF16, {}).status());
  model::TransformerParts parts;
  parts.config = ConfigOf(options_.shape);
  COPPICE_ASSIGN_OR_RETURN(parts.plan, model::MakeShardPlan(parts.config, 0, 1));
  parts.dtype = parts.kv_dtype = DType::kBF16;
  parts.max_rows = options_.max_rows;
  model::TransformerWeights& weights = parts.weights;
  const ModelShape& shape = options_.shape;
  COPPICE_ASSIGN_OR_RETURN(weights.embedding, Matrix(shape.vocabulary, shape.hidden));
  if (!shape.tied) {
    COPPICE_ASSIGN_OR_RETURN(weights.own_head, Matrix(shape.head_rows(), shape.hidden));
  }
  if (shape.kept > 0) {
    std::vector<int32_t> ids(shape.kept);
    std::iota(ids.begin(), ids.end(), 0);
    COPPICE_ASSIGN_OR_RETURN(weights.scatter,
                             backend_->PackScatter(std::move(ids), shape.vocabulary));
  }
  COPPICE_ASSIGN_OR_RETURN(weights.final_norm, Gain());
  for (int layer = 0; layer < shape.layers; ++layer) {
    model::LayerWeights& w = weights.layers.emplace_back();
    COPPICE_ASSIGN_OR_RETURN(w.attention_norm, Gain());
    COPPICE_ASSIGN_OR_RETURN(w.mlp_norm, Gain());
    if (shape.takes_states) {
      COPPICE_ASSIGN_OR_RETURN(w.state_norm, Gain());
    }
    COPPICE_ASSIGN_OR_RETURN(w.qkv, Matrix(shape.qkv_columns(), shape.qkv_inputs()));
    COPPICE_ASSIGN_OR_RETURN(w.output, Matrix(shape.hidden, shape.q_heads * shape.head_dim));
    COPPICE_ASSIGN_OR_RETURN(w.gate_up, Matrix(2 * shape.intermediate, shape.hidden));
    COPPICE_ASSIGN_OR_RETURN(w.down, Matrix(shape.hidden, shape.intermediate));
  }
  if (options_.keeps_states) {
    parts.keeps_states = true;
    parts.fusion.draft = "a head";
    parts.fusion.config.hidden_size = shape.hidden;
    for (const int layer : kStateLayers) {
      model::StateFusion::Layer& joined = parts.fusion.layers.emplace_back();
      joined.layer = layer;
      COPPICE_ASSIGN_OR_RETURN(joined.matrix, Matrix(shape.hidden, shape.hidden));
    }
  }
  COPPICE_ASSIGN_OR_RETURN(pool_, backend_->MakeKvPool(parts.kv_shape(options_.blocks)));
  if (options_.filled) {
    COPPICE_RETURN_IF_ERROR(
        FillRandom(static_cast<kernels::cuda::CudaKvPool&>(*pool_).storage.data(),
                   static_cast<int64_t>(pool_->bytes) / kValueBytes, DType::kBF16, 1, 1, stream_));
  }
  COPPICE_ASSIGN_OR_RETURN(
      decoder_, model::Transformer::Create(std::move(parts), backend_.get(), pool_.get(), 1));
  COPPICE_RETURN_IF_ERROR(backend_->Prepare(decoder_.get(), {}));
  return op_by_op_->Prepare(decoder_.get(), {});  // finds what the other has measured
}

}  // namespace coppice::bench
