// Settings of the dispatcher and of the registry of nodes: parts of CoordinatorOptions.
#pragma once

#include <cstddef>
#include <string>

#include "comm/heartbeat.h"
#include "coordinator/api/api.h"

namespace coppice::coordinator {

struct DispatcherOptions {
  // The most requests that wait for a replica. One more is refused with `queue_full`, or takes the
  // place of another client's if its own client has fewer waiting. Raise it when clients would
  // rather wait than retry.
  int max_queue = 256;

  // The most waiting requests of one client: of a key, or of an address without a key. 0: all
  // places. Set it to tell clients early that they send too much.
  int max_queue_per_client = 0;

  // Most tokens of prompt and completion of one request. 0: the model's own limit. Set it to
  // prevent single requests from reserving much KV.
  int max_model_len = 0;

  // The share of recent requests for which the KV that is expected of them would have been enough, 0
  // to 1. A larger one has fewer requests in the pool, a smaller one more preemptions.
  double kv_cover = 0.8;

  ApiLimits limits;

  // Whether each request is logged, in one line when it ends.
  bool log_requests = true;

  // Seconds that the requests of a lost replica wait for another one when none is ready. Then they
  // fail. Raise it if a replica is restarted automatically and takes longer than this.
  double failover_wait_s = 5;

  // Requests whose timelines are kept after their end, for GET /admin/timelines. 0: none is
  // recorded.
  int timelines = 64;
};

struct RegistryOptions {
  // Seconds between the heartbeats of a node. A smaller value finds dead nodes sooner and a larger
  // one tolerates a busy machine. Give the nodes the same value.
  double heartbeat_interval_s = comm::kDefaultHeartbeat_s;

  // A node that misses this many heartbeats is lost.
  int missed_beats = 3;

  // Seconds without progress after which a node that has work, and still sends heartbeats, is lost
  // and told to end. Must exceed the longest time without progress, which is about one layer of a
  // forward pass. Raise it for slow machines or very large models.
  double stuck_after_s = 10;

  // Seconds of silence after which a lost node is forgotten: it is no longer listed, and its
  // metrics end. Set it lower if nodes come and go often under new names.
  double forget_lost_after_s = 3600;

  int tokenizer_vocab = 0;    // ids of the tokenizer; the target's vocabulary must have as many
  std::string tokenizer_dir;  // for the error message when the sizes differ
  size_t max_events = 100;    // events kept for /cluster
};

}  // namespace coppice::coordinator
