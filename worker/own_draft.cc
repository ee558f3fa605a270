#include "worker/own_draft.h"

#include <spdlog/spdlog.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/model_config.h"
#include "worker/model_check.h"

namespace coppice::worker {
namespace {

// Of a flag that is not there for the draft, the target's value counts.
model::ModelRunnerOptions RunnerOptions(const WorkerFlags& flags, int place,
                                        const std::function<void()>& on_progress) {
  model::ModelRunnerOptions options = flags.node.runner;
  options.dir = flags.draft.dir;
  options.target = flags.node.runner.dir;
  options.states_for.clear();
  options.weight_dtype = flags.draft.weight_dtype;
  options.kv_bytes = flags.draft.kv_bytes;
  options.exact = false;
  options.collectives = {};
  options.collectives.place = place;
  options.on_progress = on_progress;
  return options;
}

absl::Status NameFlag(const absl::Status& status, const char* flag = "--draft") {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(flag, ": ", status.message()));
}

bool SameFolder(const std::string& one, const std::string& other) {
  std::error_code error;
  return one == other || std::filesystem::equivalent(one, other, error);
}

absl::Status CheckFit(const WorkerFlags& flags) {
  const std::string& target = flags.node.runner.dir;
  COPPICE_ASSIGN_OR_RETURN(const model::ModelConfig config, model::ReadModelConfig(target));
  return NameFlag(CheckDraft(target, config, flags.draft.dir));
}

}  // namespace

absl::StatusOr<std::unique_ptr<draft_node::DraftThread>> LoadOwnDraft(
    const WorkerFlags& flags, int place, const std::function<void()>& on_progress) {
  if (flags.draft.dir.empty()) return nullptr;
  COPPICE_RETURN_IF_ERROR(CheckFit(flags));
  spdlog::info("{}: drafts are grown in this process{}", flags.draft.dir,
               flags.node.runner.kv_bytes > 0 || flags.node.runner.backend == "cpu"
                   ? ""
                   : "; the target's KV pool gets the memory that the draft leaves");
  auto draft = draft_node::DraftThread::Load(
      [options = RunnerOptions(flags, place, on_progress)](comm::Communicator* single) {
        return model::ModelRunner::Load(options, single);
      });
  COPPICE_RETURN_IF_ERROR(NameFlag(draft.status()));
  return draft;
}

absl::StatusOr<StatesDraft> StatesDraftOf(const WorkerFlags& flags) {
  const std::string& states_for = flags.node.runner.states_for;
  if (!states_for.empty()) {
    const auto config = model::ReadModelConfig(states_for);
    COPPICE_RETURN_IF_ERROR(NameFlag(config.status(), "--states_for"));
    if (!config->takes_states()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--states_for: ", states_for, ": ", config->architecture,
                       " takes no states of a target, expected a draft that does"));
    }
  }
  const StatesDraft on_nodes = {states_for, false};
  if (flags.draft.dir.empty()) return on_nodes;
  const auto own = model::ReadModelConfig(flags.draft.dir);
  COPPICE_RETURN_IF_ERROR(NameFlag(own.status()));
  if (!own->takes_states()) return on_nodes;
  if (!states_for.empty() && !SameFolder(states_for, flags.draft.dir)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--states_for: ", states_for, ", expected ", flags.draft.dir,
                     ", since the draft of --draft takes states and the target keeps one kind"));
  }
  return StatesDraft{flags.draft.dir, true};
}

}  // namespace coppice::worker
