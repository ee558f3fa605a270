// The coordinator's flags (docs/api.md 7) as one struct, checked.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/program_help.h"
#include "comm/channel.h"
#include "coordinator/coordinator.h"

namespace coppice::coordinator {

struct LaunchOptions {
  CoordinatorOptions coordinator;
  std::string model;             // folder of the target, for its tokenizer
  std::string chat_template;     // as in tokenizer::ChatPrompt::Load; "" = that of the folder
  std::string control_listen;    // endpoint for nodes; "" = depends on the kind of launch
  comm::ChannelOptions channel;  // for nodes, with the key of the cluster
};

// What --help says: every flag of options.cc, in groups.
ProgramUsage FlagUsage();
// InvalidArgument names the flag and what it must be.
absl::StatusOr<LaunchOptions> OptionsFromFlags();

}  // namespace coppice::coordinator
