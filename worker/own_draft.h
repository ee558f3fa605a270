// The draft model of a worker's own process (--draft): on the leader's device, beside the target,
// so that one GPU serves both without a second process. And the draft whose states the target
// keeps, in this process or on draft nodes. Called by worker_main.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "draft_node/draft_thread.h"
#include "worker/worker_flags.h"

namespace coppice::worker {

// Loads the draft. Call it before the target is loaded, whose KV pool may take all memory that is
// left. place: index of the leader's device on its host. on_progress: called while it loads, on
// another thread. nullptr: --draft is not given. FailedPrecondition: the vocabulary is not the
// target's. Errors name the flag.
absl::StatusOr<std::unique_ptr<draft_node::DraftThread>> LoadOwnDraft(
    const WorkerFlags& flags, int place, const std::function<void()>& on_progress);

// The draft that takes the states that the target keeps.
struct StatesDraft {
  std::string dir;   // its folder; "": the target keeps none
  bool own = false;  // it is that of --draft
};
// By --draft, if that takes states, and --states_for. InvalidArgument: they name different ones, or
// --states_for names a model that takes none.
absl::StatusOr<StatesDraft> StatesDraftOf(const WorkerFlags& flags);

}  // namespace coppice::worker
