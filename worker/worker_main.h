// Start-up and shutdown of a worker process: a replica's leader or one of its followers.
#pragma once

namespace coppice::worker {

// Exit status: 0 clean stop, 1 cannot start or failed, 2 bad flags.
int WorkerMain(int argc, char** argv);

}  // namespace coppice::worker
