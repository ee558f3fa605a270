#include "worker/worker_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/channel.h"
#include "kernels/cpu/kernel_target.h"

namespace coppice::worker {
namespace {

FlagGroup ReplicaGroup(WorkerFlags* flags) {
  model::ModelRunnerOptions* runner = &flags->node.runner;
  return {
      "Replica",
      {{.name = "tp",
        .value = &flags->tp,
        .range = {0},
        .own_default = "0, for one replica of all worker ranks of this mpirun",
        .text = "ranks of one replica"},
       {.name = "replica_id",
        .value = &flags->replica_id,
        .own_default = "replica-PID of its leader",
        .text = "name of this replica"},
       {.name = "plan_listen",
        .value = &flags->plan_listen,
        .text = "where the followers of a replica connect to its leader: tcp:// (ZeroMQ) or "
                "direct://"},
       {.name = "communicator",
        .value = &runner->collectives.kind,
        .words = {"auto", "shm", "mpi", "nccl", "oneshot", "host"},
        .text =
            "how the ranks of a replica form sums. CPUs: shm (memory that the ranks of one host "
            "share), mpi, or auto: shm where it can be. GPUs: nccl, oneshot (our own kernels, "
            "on one host), host, shm or mpi (through host memory and the way of CPUs), or auto: "
            "nccl and oneshot by measured size, where every rank has them and a GPU of its own"},
       {.name = "step_deadline",
        .value = &runner->collectives.step_deadline_s,
        .range = {.low = 0, .above = true},
        .text = "seconds that a step of a replica with several GPUs may take; after them the "
                "replica ends"},
       {.name = "exact",
        .value = &runner->exact,
        .text = "on a GPU: the tokens of a request do not depend on the other requests of a step; "
                "slower. On a CPU they never do",
        .more = "[cuda.md](cuda.md) says what it costs."}}};
}

FlagGroup KvGroup(WorkerFlags* flags) {
  model::ModelRunnerOptions* runner = &flags->node.runner;
  return {"KV cache",
          {{.name = "kv_bytes",
            .value = &runner->kv_bytes,
            .range = {0},
            .own_default = "0: on a GPU the memory left beside the weights, less a tenth of the "
                           "whole; on a CPU 1 GiB",
            .text = "bytes of the KV pool of each rank"},
           {.name = "gpu_memory",
            .value = &runner->gpu_memory,
            .range = {0.01, 1},
            .text = "share of a GPU's memory that this process may take in all, where others use "
                    "the same GPU"},
           {.name = "scratch_blocks",
            .value = &runner->scratch_blocks,
            .range = {0},
            .text = "KV blocks in which a sequence mixes tokens of several beams, before branches "
                    "take whole blocks"}}};
}

FlagGroup DraftGroup(WorkerFlags* flags) {
  OwnDraftFlags* own = &flags->draft;
  DraftClientOptions* drafts = &flags->engine.drafts;
  SuffixDraftOptions* suffixes = &flags->engine.suffixes;
  return {
      "Drafts",
      {{.name = "draft",
        .value = &own->dir,
        .own_default = "none",
        .text = "Hugging Face folder or GGUF file of a draft model that rank 0 runs in its own "
                "process, on the same device; draft nodes may serve beside it",
        .more = "It needs the target's vocabulary, and has the target's `--dtype`, "
                "`--kv_dtype`, `--threads` and `--max_rows`. "
                "[operating.md](operating.md), \"A draft in the worker's process\"."},
       {.name = "states_for",
        .value = &flags->node.runner.states_for,
        .own_default = "that of --draft, if it takes states",
        .text =
            "folder of the draft that the draft nodes of this cluster serve, if it takes hidden "
            "states of the target, as an EAGLE-3 head does: they are kept and sent",
        .more = "Draft nodes whose draft takes other states are not used."},
       {.name = "draft_weight_dtype",
        .value = &own->weight_dtype,
        .words = {"auto", "int8", "int4"},
        .text = "`--weight_dtype` of the model of --draft"},
       {.name = "draft_kv_bytes",
        .value = &own->kv_bytes,
        .range = {1},
        .text = "bytes of the KV pool of the model of --draft"},
       {.name = "draft_max_sessions",
        .value = &own->max_sessions,
        .range = {1},
        .text = "most sequences that the model of --draft serves at the same time"},
       {.name = "draft_deadline_min",
        .value = &drafts->min_deadline_s,
        .range = {0},
        .text = "least seconds that a round waits for its draft",
        .more = "Raise it on a machine with many stalls."},
       {.name = "draft_deadline_max",
        .value = &drafts->max_deadline_s,
        .range = {0},
        .text = "seconds that a draft may take at most"},
       {.name = "suffix_drafts",
        .value = &suffixes->on,
        .text = "while no draft node has joined, draft what followed earlier occurrences of the "
                "last tokens, in prompt, answer and corpus",
        .more = "[decoding.md](decoding.md), \"Drafts without a draft model\"."},
       {.name = "suffix_index_bytes",
        .value = &suffixes->index_bytes,
        .range = {0},
        .text = "bytes for the texts of running sequences, 32 to 64 a token; a sequence that "
                "finds none left has no such drafts"},
       {.name = "suffix_corpus",
        .value = &flags->suffix_corpus.path,
        .own_default = "none",
        .text = "file of text in which drafts are looked for too: UTF-8, or token ids, a "
                "document a line, if its name ends in .ids"},
       {.name = "suffix_corpus_bytes",
        .value = &flags->suffix_corpus.most_bytes,
        .range = {0},
        .text = "bytes that the corpus may take, 8 a token; with a larger one the worker does "
                "not start"}}};
}

void CheckWorkerFlags(const WorkerFlags& flags, FlagFaults* faults) {
  node::CheckNodeFlags(flags.node, faults);
  faults->Add("plan_listen", comm::CheckEndpoint(flags.plan_listen, /*listen=*/true));
  if (flags.node.runner.backend == "cpu")
    faults->Add("kernels", kernels::cpu::ChooseKernelTarget(flags.node.runner.kernels));
  const DraftClientOptions& drafts = flags.engine.drafts;
  if (drafts.min_deadline_s <= drafts.max_deadline_s) return;
  faults->Add("draft_deadline_min",
              absl::StrCat("must be at most --draft_deadline_max (", drafts.max_deadline_s,
                           "), got ", drafts.min_deadline_s));
}

}  // namespace

FlagTable WorkerFlagTable(WorkerFlags* flags) {
  FlagTable table = {
      .program = kProgram,
      .about = "One tensor-parallel rank of the target model of a Coppice cluster.",
      .groups = {ReplicaGroup(flags),
                 KvGroup(flags),
                 {"Clients",
                  {{.name = "max_step",
                    .value = &flags->engine.scheduler.max_step_s,
                    .range = {0},
                    .text =
                        "longest expected time of a step, in seconds, while several clients have "
                        "requests: a longer one gets fewer rows; 0 = no limit",
                    .more = "[step.md](step.md), \"Who gets the rows\"."}}},
                 DraftGroup(flags),
                 {"Check",
                  {{.name = "check",
                    .value = &flags->check,
                    .text = "say what the model of --model is, without loading it, and end: family "
                            "and sizes, weights, tokenizer, memory",
                    .more = "[models.md](models.md), \"Check\"."},
                   {.name = "check_draft",
                    .value = &flags->checked.draft,
                    .own_default = "none",
                    .text = "with --check: folder or file of a draft; does it fit to the model?"},
                   {.name = "check_tokens",
                    .value = &flags->checked.tokens,
                    .range = {1},
                    .text = "with --check: tokens of a sequence, for its memory"},
                   {.name = "check_beams",
                    .value = &flags->checked.beams,
                    .range = {1, 512},
                    .text = "with --check: beams of a sequence, for its memory"}}},
                 {"Measurements",
                  {{.name = "trace_file",
                    .value = &flags->engine.trace_file,
                    .own_default = "none",
                    .text = "file that receives where the time of every step and round goes, as "
                            "Chrome trace JSON",
                    .more = "[operating.md](operating.md), \"Logs and traces\"."}}}},
      .section = "worker",
      .check = [flags](FlagFaults* faults) { CheckWorkerFlags(*flags, faults); }};
  for (FlagGroup& group : node::NodeFlagGroups(&flags->node))
    table.groups.push_back(std::move(group));
  return table;
}

}  // namespace coppice::worker
