// The draft model of a worker's own process (--draft): on the leader's device, beside the target,
// so that one GPU serves both without a second process. Called by worker_main.
#pragma once

#include <functional>
#include <memory>

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

}  // namespace coppice::worker
