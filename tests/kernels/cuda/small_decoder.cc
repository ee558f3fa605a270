#include "tests/kernels/cuda/small_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/rope_table.h"
#include "model/kv/step_builder.h"
#include "plan/plan_check.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

constexpr int kHidden = 64, kIntermediate = 96, kLayers = 2, kQHeads = 4, kKvHeads = 2;
constexpr int kHeadDim = 16;
constexpr size_t kMostRequests = 6;

void AddWindowsAndCaps(model::ModelConfig* config) {
  config->norm_place = model::NormPlace::kAround;
  config->qk_norm = true;
  config->attention_scale = 0.3f;
  config->attention_softcap = 5;
  config->ropes.push_back({SmallDecoder::kMaxPositions, PlainFrequencies(kHeadDim / 2, 100)});
  config->layers = {{/*window=*/10, /*rope=*/0}, {/*window=*/0, /*rope=*/1}};
  config->activation = Activation::kGeluTanh;
  config->embedding_scale = 1.5f;
  config->residual_scale = 0.75f;
  config->logit_softcap = 4;
}

void AddLearnedPositions(bool after_sum, model::ModelConfig* config) {
  config->norm = NormKind::kLayer;
  config->norm_bias = true;
  config->ropes.clear();
  config->layers.assign(kLayers, {0, -1});
  config->names.positions = "positions";
  config->position_offset = 2;
  config->attention_bias = config->output_bias = config->mlp_bias = true;
  config->activation = after_sum ? Activation::kGelu : Activation::kRelu;
  config->gated_mlp = false;
  if (!after_sum) return;
  config->norm_place = model::NormPlace::kAfterSum;
  config->embedding_size = kHidden / 2;
}

model::ModelConfig ConfigOf(SmallFamily family) {
  model::ModelConfig config;
  config.vocab_size = SmallDecoder::kVocab;
  config.hidden_size = config.embedding_size = kHidden;
  config.intermediate_size = kIntermediate;
  config.num_layers = kLayers;
  config.num_heads = kQHeads;
  config.num_kv_heads = kKvHeads;
  config.head_dim = kHeadDim;
  config.max_positions = SmallDecoder::kMaxPositions;
  config.attention_bias = true;
  config.attention_scale = 1 / std::sqrt(float{kHeadDim});
  config.ropes = {{SmallDecoder::kMaxPositions, PlainFrequencies(kHeadDim, 1e4)}};
  config.layers.resize(kLayers);
  if (family == SmallFamily::kWindows) AddWindowsAndCaps(&config);
  if (family == SmallFamily::kLearned) AddLearnedPositions(/*after_sum=*/false, &config);
  if (family == SmallFamily::kAfterSum) AddLearnedPositions(/*after_sum=*/true, &config);
  return config;
}

}  // namespace

SmallDecoder::SmallDecoder(std::unique_ptr<TestBackend> backend, DType dtype, int max_rows,
                           SmallFamily family)
    : backend_(std::move(backend)), dtype_(dtype) {
  model::TransformerParts parts;
  parts.config = ConfigOf(family);
  parts.plan = model::MakeShardPlan(parts.config, 0, 1).value();
  parts.dtype = parts.kv_dtype = dtype;
  parts.max_rows = max_rows;
  parts.weights = Weights(parts.config);
  pool_ = this->backend()->MakeKvPool(parts.kv_shape(kBlocks)).value();
  decoder_ = model::Transformer::Create(std::move(parts), this->backend(), pool_.get(), /*ranks=*/1)
                 .value();
}

model::TransformerWeights SmallDecoder::Weights(const model::ModelConfig& config) {
  const bool around = config.norm_place == model::NormPlace::kAround;
  const auto norm = [&](bool present = true) {
    return present ? Gain(kHidden, config.norm_bias) : nullptr;
  };
  model::TransformerWeights weights;
  weights.embedding = Matrix(kVocab, config.embedding_size);
  weights.final_norm = norm(config.norm_place != model::NormPlace::kAfterSum);
  if (config.learned_positions()) weights.positions = Matrix(config.position_rows(), kHidden);
  if (config.projects_embedding()) {
    weights.project_in = Matrix(kHidden, config.embedding_size);
    weights.project_out = Matrix(config.embedding_size, kHidden);
  }
  for (int layer = 0; layer < kLayers; ++layer) {
    model::LayerWeights& w = weights.layers.emplace_back();
    w.attention_norm = norm();
    w.attention_out_norm = norm(around);
    if (config.qk_norm) {
      w.q_norm = Gain(kHeadDim, /*bias=*/false);
      w.k_norm = Gain(kHeadDim, /*bias=*/false);
    }
    w.qkv = Matrix((kQHeads + 2 * kKvHeads) * kHeadDim, kHidden, config.attention_bias);
    w.output = Matrix(kHidden, kQHeads * kHeadDim, config.output_bias);
    w.mlp_norm = norm();
    w.mlp_out_norm = norm(around);
    w.gate_up = Matrix((config.gated_mlp ? 2 : 1) * kIntermediate, kHidden, config.mlp_bias);
    w.down = Matrix(kHidden, kIntermediate, config.mlp_bias);
  }
  return weights;
}

std::unique_ptr<Weight> SmallDecoder::Matrix(int64_t rows, int64_t columns, bool bias) {
  std::vector<float> values = RandomFloats(rows * columns, ++seed_);
  for (float& value : values) value *= 0.3f;
  const MatrixSource source = {values.data(), DType::kF32, rows, columns, columns};
  return backend()
      ->Pack({source}, dtype_, bias ? RandomFloats(rows, ++seed_) : std::vector<float>())
      .value();
}

std::unique_ptr<Weight> SmallDecoder::Gain(int64_t size, bool bias) {
  std::vector<float> gain = RandomFloats(size, ++seed_);
  for (float& value : gain) value += 1.5f;
  return backend()
      ->PackGain(gain, bias ? RandomFloats(size, ++seed_) : std::vector<float>())
      .value();
}

const StepRows* SmallDecoder::Run(const StepPlan& plan) {
  const absl::Status submitted = backend()->Submit(plan, pass());
  EXPECT_TRUE(submitted.ok()) << submitted;
  while (!backend()->HeadReached()) {
  }
  const absl::StatusOr<const StepRows*> rows = backend()->Wait();
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : nullptr;
}

StepPlan PrefillPlan(int rows, int needs) {
  StepPlan plan = PlanOfRows(rows);
  plan.segments = {{0, rows, rows}};
  for (int row = 0; row < rows; ++row) {
    plan.token[row] = row * 7 % SmallDecoder::kVocab;
    plan.position[row] = row;
    plan.slot[row] = kBlockSize + row;
    if (row % kBlockSize == 0) plan.table.push_back(1 + row / kBlockSize);
    if (row >= rows - needs) plan.needs.push_back({.row = row});
  }
  plan.table_begin = {0, static_cast<int32_t>(plan.table.size())};
  return plan;
}

RandomSteps::RandomSteps(uint64_t seed)
    : generator_(seed), blocks_({.num_blocks = SmallDecoder::kBlocks, .scratch_blocks = 3}) {}

void RandomSteps::Open() {
  Request request;
  const int length = Pick(4) == 0 ? 60 : 1 + Pick(20);
  for (int i = 0; i < length; ++i) request.prompt.push_back(Pick(SmallDecoder::kVocab));
  int cached = 0;
  request.sequence = blocks_.Open(request.prompt, &cached);
  request.prompt.erase(request.prompt.begin(), request.prompt.begin() + cached);
  requests_.push_back(std::move(request));
}

void RandomSteps::Close(size_t request) {
  blocks_.Close(requests_[request].sequence);
  requests_.erase(requests_.begin() + static_cast<int64_t>(request));
}

void RandomSteps::Commit(Request* request) {
  if (request->nodes.empty()) return;
  std::vector<model::KvNode> leaf = {request->nodes[Pick(static_cast<int>(request->nodes.size()))]};
  blocks_.Retain(request->sequence, leaf);
  COPPICE_CHECK(blocks_.Commit(request->sequence, leaf, &commits_).ok());
  request->nodes.clear();
}

StepPlan RandomSteps::Next(RowNeed::Form form) {
  blocks_.EndRound();
  if (requests_.empty() || (requests_.size() < kMostRequests && Pick(3) == 0)) Open();
  if (requests_.size() > 1 && Pick(8) == 0) Close(Pick(static_cast<int>(requests_.size())));
  model::StepBuilder step(&blocks_, SmallDecoder::kVocab);
  const bool commits_alone = !commits_.empty() && Pick(6) == 0;
  for (Request& request : requests_) {
    if (commits_alone || Pick(4) == 0) continue;
    if (!request.prompt.empty()) {
      const size_t count = std::min<size_t>(request.prompt.size(), 1 + Pick(30));
      if (step.rows() + count > SmallDecoder::kMaxRows) continue;
      const std::vector<TokenId> chunk(request.prompt.begin(), request.prompt.begin() + count);
      step.AddPrefixRows(request.sequence, chunk,
                         blocks_.AppendPrefix(request.sequence, chunk).value());
      request.prompt.erase(request.prompt.begin(), request.prompt.begin() + count);
      continue;
    }
    for (int i = 1 + Pick(5); i > 0 && step.rows() < SmallDecoder::kMaxRows; --i) {
      const int parent = Pick(static_cast<int>(request.nodes.size()) + 1) - 1;
      const TokenId token = Pick(SmallDecoder::kVocab);
      const model::KvNode above = parent < 0 ? model::kPrefixEnd : request.nodes[parent];
      if (blocks_.FindChild(request.sequence, above, token) != model::kNoKv) continue;
      const model::KvNode node = blocks_.AddNode(request.sequence, above, token).value();
      request.nodes.push_back(node);
      if (Pick(4) == 0) {
        step.AddNodeRow(request.sequence, node, token);
        continue;
      }
      RowNeed need;
      need.form = form;
      need.count = 4;
      step.AddNodeRow(request.sequence, node, token, need);
    }
  }
  StepPlan plan = step.Take();
  plan.commits = std::exchange(commits_, {});
  plan.step = ++step_;
  const absl::Status checked =
      CheckPlan(plan, {SmallDecoder::kMaxRows, SmallDecoder::kVocab, SmallDecoder::kMaxPositions,
                       SmallDecoder::kBlocks, /*needs_before=*/0});
  COPPICE_CHECK_MSG(checked.ok(), checked.message());
  for (Request& request : requests_) {
    if (request.nodes.size() > 20 || Pick(2) == 0) Commit(&request);
  }
  for (size_t i = requests_.size(); i > 0; --i) {
    if (blocks_.prefix_length(requests_[i - 1].sequence) > 150) Close(i - 1);
  }
  return plan;
}

}  // namespace coppice::kernels
