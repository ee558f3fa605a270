#include "draft_node/draft_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/channel.h"
#include "kernels/cpu/kernel_target.h"
#include "model/model_config.h"

namespace coppice::draft_node {
namespace {

FlagGroup DraftGroup(DraftFlags* flags) {
  model::ModelRunnerOptions* runner = &flags->node.runner;
  return {
      "Draft node",
      {{.name = "node_id",
        .value = &flags->node_id,
        .own_default = "draft-PID",
        .text = "name of this node"},
       {.name = "listen",
        .value = &flags->listen,
        .text =
            "where worker leaders connect: direct://host:port, or tcp://host:port to use ZeroMQ",
        .more = "An address of this host that they can reach, and a port (`*`: any free one)."},
       {.name = "kv_bytes",
        .value = &runner->kv_bytes,
        .range = {0},
        .text = "bytes of the KV pool; 0 = as for a worker"},
       {.name = "max_sessions",
        .value = &flags->service.max_sessions,
        .range = {0},
        .text = "most sequences that the node drafts for at the same time",
        .more = "Further ones decode without drafts. Raise it, and `--kv_bytes`, if a node serves "
                "more sequences."},
       {.name = "target",
        .value = &runner->target,
        .own_default = "none",
        .text = "folder or GGUF file of the target; for a draft that takes its hidden states",
        .more = "Its embedding serves where the draft has none, and the draft is checked against "
                "it. Workers that keep the states for this draft use the node (`--states_for`)."},
       {.name = "device_forests",
        .value = &runner->device_forests,
        .text = "let a GPU choose the levels of a forest itself, with one wait for all of them"}}};
}

// A model that cannot be read is reported when it is loaded.
void CheckTarget(const model::ModelRunnerOptions& runner, FlagFaults* faults) {
  const auto draft = model::ReadModelConfig(runner.dir);
  if (draft.ok() && draft->takes_states() && runner.target.empty())
    faults->Add("target", absl::StrCat("empty, but ", runner.dir,
                                       " takes hidden states of its target; give the target's "
                                       "folder or file"));
}

}  // namespace

FlagTable DraftFlagTable(DraftFlags* flags) {
  FlagTable table = {.program = kProgram,
                     .about = "Grows draft forests for the workers of a Coppice cluster.",
                     .groups = {DraftGroup(flags)},
                     .section = "draft",
                     .check = [flags](FlagFaults* faults) {
                       node::CheckNodeFlags(flags->node, faults);
                       CheckTarget(flags->node.runner, faults);
                       faults->Add("listen", comm::CheckEndpoint(flags->listen, /*listen=*/true));
                       if (flags->node.runner.backend == "cpu")
                         faults->Add("kernels",
                                     kernels::cpu::ChooseKernelTarget(flags->node.runner.kernels));
                     }};
  for (FlagGroup& group : node::NodeFlagGroups(&flags->node))
    table.groups.push_back(std::move(group));
  return table;
}

}  // namespace coppice::draft_node
