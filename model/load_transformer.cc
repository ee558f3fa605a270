#include "model/load_transformer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/root_failure.h"
#include "base/status.h"
#include "kernels/block_format.h"
#include "model/checkpoint.h"
#include "model/draft_checkpoint.h"
#include "model/fingerprint.h"
#include "model/model_config.h"
#include "model/model_memory.h"
#include "model/shard_plan.h"
#include "model/state_fusion.h"
#include "model/target_states.h"
#include "model/weights.h"

namespace coppice::model {
namespace {

// The precision in which weights and KV are stored in memory.
absl::StatusOr<kernels::DType> StoredDType(const std::string& asked, const ModelConfig& config,
                                           const Checkpoint& checkpoint,
                                           const kernels::Backend& backend) {
  using kernels::DType;
  const bool f16 = backend.stores(DType::kF16);
  if (asked == "f32") return DType::kF32;
  if (asked == "bf16") return DType::kBF16;
  if (asked == "f16" && f16) return DType::kF16;
  if (asked == "f16") {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype: f16, but the ", backend.name(),
                     " backend keeps weights and KV as f32 or bf16 (auto: F16 becomes f32)"));
  }
  if (asked != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype: ", asked, ", expected auto, f32, bf16 or f16"));
  }
  // The embedding of a draft may be its target's.
  const std::string tensor = config.takes_states()
                                 ? absl::StrCat(config.names.layers, "0.", config.names.q)
                                 : std::string(config.names.embedding);
  COPPICE_ASSIGN_OR_RETURN(const DType stored,
                           checkpoint.TensorDType(absl::StrCat(tensor, ".weight")));
  return stored == DType::kF16 && !f16 ? DType::kF32 : stored;
}

bool ServesBlocks(const ModelConfig& config, kernels::DType stored,
                  const kernels::Backend& backend) {
  return backend.serves_blocks(stored, /*experts=*/config.experts.count > 0);
}

// How matrices are stored in memory: like the other weights if the backend lacks the requested
// type.
absl::StatusOr<kernels::DType> MatrixDType(const std::string& asked, const ModelConfig& config,
                                           kernels::DType stored, const kernels::Backend& backend) {
  if (asked == "auto") return stored;
  if (asked != "int8" && asked != "int4") {
    return absl::InvalidArgumentError(
        absl::StrCat("weight_dtype: ", asked, ", expected auto, int8 or int4"));
  }
  const kernels::DType dtype = asked == "int8" ? kernels::DType::kQ8_0 : kernels::DType::kQ4_0;
  return backend.stores(dtype) && ServesBlocks(config, stored, backend) ? dtype : stored;
}

// What a backend that stores these types does not have, for a warning.
std::string LackedWeights(const ModelConfig& config, kernels::DType stored,
                          const kernels::Backend& backend) {
  if (!backend.stores(kernels::DType::kQ8_0)) return "weights";
  if (config.experts.count > 0) return "weights in a model with experts";
  return absl::StrCat("weights beside ", kernels::DTypeName(stored));
}

absl::StatusOr<kernels::DType> KvDType(const std::string& asked, kernels::DType stored) {
  if (asked == "auto") return stored;
  if (asked == "int8") return kernels::DType::kI8;
  return absl::InvalidArgumentError(absl::StrCat("kv_dtype: ", asked, ", expected auto or int8"));
}

void LogUnused(const std::string& dir, const Checkpoint& checkpoint) {
  const std::vector<std::string> names = checkpoint.UnusedNames();
  if (!names.empty())
    spdlog::debug("{}: {} tensors not used, such as {}", dir, names.size(), names[0]);
}

// What several ranks do not serve.
absl::Status CheckServed(const std::string& dir, const ModelConfig& config, int ranks) {
  if (ranks > 1 && config.takes_states()) {
    return absl::UnimplementedError(absl::StrCat(
        dir, ": ", config.architecture,
        " is a draft that takes the states of its target, not served by several ranks (--tp)"));
  }
  if (ranks == 1 || !config.whole_qk_norm) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(dir, ": ", config.architecture,
                                               " has norms of q and k over all heads, not served "
                                               "yet by several ranks (--tp)"));
}

// What the parts and their memory become if these matrices stay in their formats.
void TakeBlocks(const BlockMatrices& blocks, int ranks, TransformerParts* parts) {
  if (blocks.elements == 0) return;
  const auto bytes = static_cast<int64_t>(kernels::DTypeSize(parts->weight_dtype));
  parts->memory.weights -= (blocks.elements * bytes - blocks.bytes) / ranks;
  parts->weight_types = absl::StrJoin(blocks.formats, ", ");
}

// What is known before the weights are read.
struct Prepared {
  TransformerParts parts;
  std::unique_ptr<Checkpoint> checkpoint;
  bool keeps_blocks = false;
  kernels::DType fusion_dtype = kernels::DType::kF32;  // of the matrices that join states
};

// How those are stored: as the weights of the model; beside weights in 4 or 8 bits in 8 bits, since
// what they read of memory counts beside a smaller model, and a draft's states need no more.
kernels::DType FusionDType(const TransformerParts& parts, bool has_blocks,
                           const kernels::Backend& backend) {
  const bool small = kernels::IsBlockFormat(parts.weight_dtype) || has_blocks;
  return small && backend.stores(kernels::DType::kQ8_0) ? kernels::DType::kQ8_0 : parts.dtype;
}

absl::Status PrepareStates(const LoadOptions& options, bool has_blocks,
                           const kernels::Backend& backend, Prepared* prepared) {
  TransformerParts& parts = prepared->parts;
  COPPICE_ASSIGN_OR_RETURN(parts.fusion,
                           ReadStateFusion(options.states_for, options.dir, parts.config));
  prepared->fusion_dtype = FusionDType(parts, has_blocks, backend);
  const ModelMemory more = PredictMemory(parts.fusion, prepared->fusion_dtype,
                                         backend.activation_dtype(), parts.max_rows);
  parts.memory.weights += more.weights;
  parts.memory.activations += more.activations;
  return absl::OkStatus();
}

absl::StatusOr<Prepared> Prepare(const LoadOptions& options, const kernels::Backend& backend,
                                 int rank, int ranks) {
  if (options.max_rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_rows: ", options.max_rows, ", expected at least 1"));
  }
  Prepared prepared;
  TransformerParts& parts = prepared.parts;
  parts.max_rows = options.max_rows;
  parts.on_layer = options.on_layer;
  COPPICE_ASSIGN_OR_RETURN(parts.config, ReadDraftConfig(options.dir, options.target));
  COPPICE_RETURN_IF_ERROR(CheckServed(options.dir, parts.config, ranks));
  COPPICE_ASSIGN_OR_RETURN(parts.plan, MakeShardPlan(parts.config, rank, ranks));
  COPPICE_ASSIGN_OR_RETURN(prepared.checkpoint,
                           OpenCheckpoint(options.dir, parts.config, options.target));
  COPPICE_ASSIGN_OR_RETURN(parts.dtype,
                           StoredDType(options.dtype, parts.config, *prepared.checkpoint, backend));
  COPPICE_ASSIGN_OR_RETURN(parts.kv_dtype, KvDType(options.kv_dtype, parts.dtype));
  COPPICE_ASSIGN_OR_RETURN(parts.weight_dtype,
                           MatrixDType(options.weight_dtype, parts.config, parts.dtype, backend));
  parts.memory = PredictMemory(parts.config, parts.plan, parts.weight_dtype,
                               backend.activation_dtype(), parts.max_rows, ranks);
  prepared.keeps_blocks = options.dtype == "auto" && options.weight_dtype == "auto" &&
                          ServesBlocks(parts.config, parts.dtype, backend);
  parts.weight_types = kernels::DTypeName(parts.weight_dtype);
  BlockMatrices blocks;
  if (prepared.keeps_blocks) blocks = prepared.checkpoint->Blocks(backend);
  TakeBlocks(blocks, ranks, &parts);
  if (!options.states_for.empty() && rank == 0) {
    COPPICE_RETURN_IF_ERROR(PrepareStates(options, blocks.elements > 0, backend, &prepared));
  }
  return prepared;
}

absl::StatusOr<TransformerParts> LoadParts(const LoadOptions& options, kernels::Backend* backend,
                                           int rank, int ranks) {
  COPPICE_ASSIGN_OR_RETURN(Prepared prepared, Prepare(options, *backend, rank, ranks));
  TransformerParts& parts = prepared.parts;
  if (options.weight_dtype != "auto" && parts.weight_dtype == parts.dtype && rank == 0) {
    spdlog::warn("{}: weight_dtype: {}, but the {} backend has no such {}; keeps them as {}",
                 options.dir, options.weight_dtype, backend->name(),
                 LackedWeights(parts.config, parts.dtype, *backend),
                 kernels::DTypeName(parts.dtype));
  }
  COPPICE_ASSIGN_OR_RETURN(const kernels::MemoryFacts memory, backend->Memory());
  COPPICE_RETURN_IF_ERROR(CheckFits(options.dir, parts.memory,
                                    memory.of_device ? options.kv_bytes : 0, parts.weight_dtype,
                                    ShareOf(memory, options.gpu_memory, /*used=*/0)));
  COPPICE_ASSIGN_OR_RETURN(parts.fingerprint, prepared.checkpoint->ComputeFingerprint());
  if (parts.weight_dtype != parts.dtype) {  // a different model than the checkpoint
    Fingerprint quantised;
    quantised.Add(absl::StrCat(parts.fingerprint, " ", parts.weight_types));
    parts.fingerprint = quantised.value();
  }
  backend->SetActivations(parts.dtype);
  WeightsRequest request{&parts.config, parts.plan, rank, parts.weight_dtype, parts.dtype};
  request.keeps_blocks = prepared.keeps_blocks;
  request.progress = options.progress;
  COPPICE_ASSIGN_OR_RETURN(parts.weights, LoadWeights(request, prepared.checkpoint.get(), backend));
  if (!parts.fusion.empty()) {
    COPPICE_RETURN_IF_ERROR(LoadStateFusion(prepared.fusion_dtype, backend, &parts.fusion));
  }
  LogUnused(options.dir, *prepared.checkpoint);
  return std::move(parts);
}

// What rank 0 tells the others before they may go on.
struct LeaderFacts {
  uint64_t fingerprint = 0;  // 0: it failed
  bool keeps_states = false;
  std::string kv_dtype;
};

absl::StatusOr<LeaderFacts> ShareFacts(const LeaderFacts& mine, comm::Communicator* communicator) {
  std::string packed(reinterpret_cast<const char*>(&mine.fingerprint), sizeof mine.fingerprint);
  absl::StrAppend(&packed, mine.keeps_states ? "1" : "0", mine.kv_dtype);
  COPPICE_RETURN_IF_ERROR(communicator->Broadcast(&packed));
  constexpr size_t kFixed = sizeof mine.fingerprint + 1;
  packed.resize(std::max(packed.size(), kFixed));
  LeaderFacts facts{0, packed[kFixed - 1] == '1', packed.substr(kFixed)};
  std::memcpy(&facts.fingerprint, packed.data(), sizeof facts.fingerprint);
  return facts;
}

// Collective, so that no rank waits for another that has failed. A rank that failed returns its own
// error. fingerprint: 0 if it failed.
absl::Status Agree(const LoadOptions& options, absl::Status mine, uint64_t fingerprint,
                   comm::Communicator* communicator, bool* keeps_states) {
  const std::string& dir = options.dir;
  COPPICE_ASSIGN_OR_RETURN(
      const LeaderFacts leader,
      ShareFacts({fingerprint, !options.states_for.empty(), options.kv_dtype}, communicator));
  *keeps_states = leader.keeps_states;
  const uint64_t expected = leader.fingerprint;
  const std::string& leader_kv = leader.kv_dtype;
  if (mine.ok() && leader_kv != options.kv_dtype) {
    mine = absl::FailedPreconditionError(
        absl::StrCat("kv_dtype: ", options.kv_dtype, " on rank ", communicator->rank(), ", ",
                     leader_kv, " on rank 0; all ranks of a replica keep KV in one type"));
  }
  if (mine.ok() && expected != 0 && expected != fingerprint) {
    mine = absl::FailedPreconditionError(absl::StrCat(
        dir, ": rank ", communicator->rank(), " finds another checkpoint here than rank 0"));
  }
  float failures = mine.ok() ? 0 : 1;
  const absl::Status sum = communicator->AllReduceSum(absl::MakeSpan(&failures, 1));
  if (!mine.ok()) return mine;
  COPPICE_RETURN_IF_ERROR(sum);
  if (failures == 0) return absl::OkStatus();
  return OtherRankFailed(absl::StrCat(dir, ": ", static_cast<int>(failures), " of ",
                                      communicator->size(), " ranks could not load their shard"));
}

}  // namespace

absl::StatusOr<LoadEstimate> EstimateLoad(const LoadOptions& options,
                                          const kernels::Backend& backend, int ranks) {
  COPPICE_ASSIGN_OR_RETURN(Prepared prepared, Prepare(options, backend, /*rank=*/0, ranks));
  LoadEstimate estimate;
  estimate.memory = prepared.parts.memory;
  estimate.weight_types = prepared.parts.weight_types;
  estimate.kv_dtype = prepared.parts.kv_dtype;
  estimate.kv_token_bytes = prepared.parts.kv_block_bytes() / kBlockSize;
  estimate.kv_layout = KvLayoutOf(prepared.parts.config, prepared.parts.fusion.empty());
  estimate.states = prepared.parts.fusion.config.states;
  estimate.state_columns = prepared.parts.fusion.columns();
  estimate.config = std::move(prepared.parts.config);
  return estimate;
}

absl::StatusOr<TransformerParts> LoadTransformer(const LoadOptions& options,
                                                 kernels::Backend* backend,
                                                 comm::Communicator* communicator) {
  auto parts = LoadParts(options, backend, communicator->rank(), communicator->size());
  bool keeps_states = false;
  COPPICE_RETURN_IF_ERROR(Agree(options, parts.status(), parts.ok() ? parts->fingerprint : 0,
                                communicator, &keeps_states));
  parts->keeps_states = keeps_states;
  return parts;
}

}  // namespace coppice::model
