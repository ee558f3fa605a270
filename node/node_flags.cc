#include "node/node_flags.h"

#include "absl/strings/match.h"
#include "base/status.h"
#include "comm/channel.h"

namespace coppice::node {
namespace {

FlagGroup ModelGroup(NodeFlags* flags) {
  model::ModelRunnerOptions* runner = &flags->runner;
  return {
      "Model and passes",
      {{.name = "model",
        .value = &runner->dir,
        .required = true,
        .text = "Hugging Face folder or GGUF file of the model",
        .more = "A worker's needs a tokenizer for requests with `stop` or a format. A draft's must "
                "have the target's vocabulary; with a tokenizer its drafts keep to the format that "
                "a request asks for."},
       {.name = "dtype",
        .value = &runner->dtype,
        .words = {"auto", "f32", "bf16", "f16"},
        .text = "precision of weights and KV; auto is that of the checkpoint (on the CPU f16 "
                "becomes f32), f16 needs CUDA",
        .more = "The checkpoint's precision is that of its embedding, or bf16 if that is of 8-bit "
                "integers. A matrix of type I8 has one factor for each row in the tensor "
                "NAME_scale."},
       {.name = "weight_dtype",
        .value = &runner->weight_dtype,
        .words = {"auto", "int8", "int4"},
        .text = "how the matrices of the model are kept; auto is the type of --dtype, int8 takes "
                "half the memory of bf16, int4 a little over a third (embedding, head and QKV stay "
                "int8); the answers are those of the quantised model",
        .more = "int8 is the format Q8_0 of GGUF, int4 its format Q4_0: groups of 32 with a scale "
                "each. On the CPU both are faster than bf16 ([performance.md](performance.md)). "
                "CUDA has them beside bf16 or f16 and in models without experts; else it keeps the "
                "type of --dtype and says so."},
       {.name = "kv_dtype",
        .value = &runner->kv_dtype,
        .words = {"auto", "int8"},
        .text = "how K and V are kept; auto is the type of --dtype, int8 takes little more than "
                "half the memory of bf16; the answers are those of the rounded K and V, the same "
                "with drafts and without, alone and in company",
        .more =
            "Every vector of a head has a scale of its own. A replica's ranks must be given the "
            "same; a draft may differ from its target "
            "([operating.md](operating.md), \"KV in 8 bits\")."},
       {.name = "backend",
        .value = &runner->backend,
        .words = {"cpu", "cuda"},
        .text = "the device that computes",
        .more = "[operating.md](operating.md), \"On a GPU\"."},
       {.name = "kernels",
        .value = &runner->kernels,
        .text = "instruction set of the CPU backend: best, avx512_bf16 (rounds the input of bf16 "
                "products to bf16), avx512, avx2 or scalar",
        .more = "avx512_bf16 also rounds queries and weights of attention over KV in bf16 or "
                "int8 to bf16; the others do not."},
       {.name = "threads",
        .value = &runner->threads,
        .range = {0},
        .own_default = "0, for all cores that this process may use",
        .text = "compute threads of each rank",
        .more = "More threads than cores are used, with a warning."},
       {.name = "max_rows",
        .value = &runner->max_rows,
        .range = {8},
        .text = "most rows of one step"},
       {.name = "prefill_chunk",
        .value = &flags->prefill_chunk,
        .range = {1},
        .text = "prefill tokens of one forward pass, at most"},
       {.name = "catalogues",
        .value = &flags->catalogues,
        .own_default = "none",
        .text = "NAME=FILE of each served catalogue (coppice-catalogue), with commas; those of the "
                "coordinator",
        .more = "[catalogues.md](catalogues.md). A draft node without them makes worse drafts."},
       {.name = "tuning_cache",
        .value = &runner->tuning_cache,
        .text = "folder that keeps which matrix products are fastest on this GPU; auto: "
                "$XDG_CACHE_HOME/coppice or ~/.cache/coppice; empty: none is measured"},
       {.name = "overlap_launches",
        .value = &runner->overlap_launches,
        .text = "on a GPU of compute capability 9.0: kernels start while the one before them "
                "still runs; no bit changes"}}};
}

FlagGroup ClusterGroup(NodeFlags* flags) {
  return {
      "Cluster",
      {{.name = "coordinator",
        .value = &flags->coordinator,
        .text = "tcp://host:port of the coordinator's control endpoint; not needed under one "
                "mpirun"},
       {.name = "cluster_key_file",
        .value = &flags->cluster_key_file,
        .text = "file with the key of the cluster (deploy/cluster_key.sh); empty: connections "
                "are neither authenticated nor encrypted",
        .more = "[operating.md](operating.md), \"Security between nodes\"."},
       {.name = "start_deadline",
        .value = &flags->start_deadline_s,
        .range = {.low = 0, .above = true},
        .text = "seconds that a starting process waits for the others of its mpirun or replica"},
       {.name = "heartbeat_interval",
        .value = &flags->heartbeat_interval_s,
        .range = {0.01, 60},
        .text = "seconds between heartbeats; the same as the coordinator's"}}};
}

FlagGroup EnergyGroup(EnergyFlags* flags) {
  return {
      "Energy",
      {{.name = "energy_source",
        .value = &flags->source,
        .words = {"auto", "rapl", "nvml", "off"},
        .text = "what measures energy; auto is rapl with --backend=cpu, nvml with "
                "--backend=cuda",
        .more = "[operating.md](operating.md), \"Energy\"."},
       {.name = "powercap",
        .value = &flags->powercap,
        .text = "where RAPL is read: the powercap folder of sysfs, or where a container has it"},
       {.name = "nvml_library",
        .value = &flags->nvml_library,
        .text = "library of the NVIDIA driver that is loaded to read a GPU's energy"}}};
}

}  // namespace

std::vector<FlagGroup> NodeFlagGroups(NodeFlags* flags) {
  return {ModelGroup(flags), ClusterGroup(flags), EnergyGroup(&flags->energy)};
}

void CheckNodeFlags(const NodeFlags& flags, FlagFaults* faults) {
  const std::string what = EnergyFault(flags.energy, flags.runner.backend);
  if (!what.empty()) faults->Add("energy_source", what);
  if (const auto key = comm::ClusterKey::Load(flags.cluster_key_file); !key.ok())
    faults->Add("cluster_key_file", key.status().message());
  if (flags.coordinator.empty()) return;
  const absl::Status endpoint = comm::CheckEndpoint(flags.coordinator, /*listen=*/false);
  faults->Add("coordinator", endpoint);
  if (endpoint.ok() && !absl::StartsWith(flags.coordinator, "tcp://"))
    faults->Add("coordinator", "nodes register over ZeroMQ, tcp://");
}

absl::StatusOr<comm::ChannelOptions> ChannelOptionsOf(const NodeFlags& flags) {
  comm::ChannelOptions options;
  COPPICE_ASSIGN_OR_RETURN(options.key, comm::ClusterKey::Load(flags.cluster_key_file));
  return options;
}

}  // namespace coppice::node
