#include "worker/own_draft.h"

#include <spdlog/spdlog.h>

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
  options.weight_dtype = flags.draft.weight_dtype;
  options.kv_bytes = flags.draft.kv_bytes;
  options.exact = false;
  options.collectives = {};
  options.collectives.place = place;
  options.on_progress = on_progress;
  return options;
}

absl::Status NameFlag(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--draft: ", status.message()));
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

}  // namespace coppice::worker
