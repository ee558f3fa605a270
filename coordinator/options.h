// The flags of coppice-coordinator (docs/flags.md) and the options that they give. Called by
// coordinator_main, and by the program that writes docs/flags.md.
#pragma once

#include <string>

#include "base/flag_table.h"
#include "comm/channel.h"
#include "coordinator/coordinator.h"

namespace coppice::coordinator {

struct LaunchOptions {
  CoordinatorOptions coordinator;
  std::string model;                    // folder of the target, for its tokenizer
  std::vector<std::string> catalogues;  // NAME=FILE of each
  std::string chat_template;         // as in tokenizer::ChatPrompt::Load; "" = that of the folder
  std::string control_listen;        // endpoint for nodes; "" = depends on the kind of launch
  std::string cluster_key_file;      // "" = connections with nodes are open
  std::string tool_format = "auto";  // or none, or of a format: CoordinatorOptions::tool_format
  std::string reasoning = "auto";    // or none
  std::string generation_config = "auto";  // or none: CoordinatorOptions::sampling_defaults
  std::string unknown_fields = "ignore";   // or refuse: ApiLimits::refuse_unknown_fields
  comm::ChannelOptions channel;            // channel to nodes; has the key of the cluster
};

// *options must outlive the table. The table's check completes them: names and keys that follow
// from what the flags give.
FlagTable CoordinatorFlagTable(LaunchOptions* options);

}  // namespace coppice::coordinator
