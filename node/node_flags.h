// The flags that both kinds of node process have: the model and its passes, the cluster, energy.
// Called by the flags of worker and draft node, at start.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/flag_table.h"
#include "comm/channel.h"
#include "comm/heartbeat.h"
#include "model/model_runner.h"
#include "node/energy/node_energy.h"
#include "plan/step_limits.h"

namespace coppice::node {

struct NodeFlags {
  NodeFlags() { runner.tuning_cache = "auto"; }  // a runner by itself does not measure products

  model::ModelRunnerOptions runner;
  int prefill_chunk = kDefaultPrefillChunk;
  std::vector<std::string> catalogues;  // NAME=FILE
  std::string coordinator;              // "": the coordinator of this mpirun
  std::string cluster_key_file;
  double start_deadline_s = 120;
  double heartbeat_interval_s = comm::kDefaultHeartbeat_s;
  EnergyFlags energy;
};

// *flags must outlive the rows.
std::vector<FlagGroup> NodeFlagGroups(NodeFlags* flags);

// Checks rules that concern several flags.
void CheckNodeFlags(const NodeFlags& flags, FlagFaults* faults);

// With the key of --cluster_key_file. The error names the file.
absl::StatusOr<comm::ChannelOptions> ChannelOptionsOf(const NodeFlags& flags);

}  // namespace coppice::node
