// A replica without a model, on a thread of its own. It registers with a coordinator by the control
// protocol and reports tokens of every sequence each step_s seconds, all in one message, as an
// engine does. A sequence that is not streamed ends at once with one token.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"
#include "comm/node_agent.h"
#include "lab/bench/coordinator/stamps.h"
#include "proto/control.pb.h"

namespace coppice::bench {

struct ReplicaOptions {
  std::string coordinator;  // its control endpoint
  std::string name;
  int vocab_size = 0;
  std::vector<TokenId> tokens;  // the output of every sequence, again and again
  int tokens_per_step = 1;      // of each sequence
  double step_s = 0.05;
  double phase_s = 0;  // when the first step begins
  double heartbeat_interval_s = 5;
};

class FakeReplica {
 public:
  // stamps must outlive the replica. A sequence's stream is the seed of its request.
  static absl::StatusOr<std::unique_ptr<FakeReplica>> Start(const ReplicaOptions& options,
                                                            Stamps* stamps);
  ~FakeReplica();
  FakeReplica(const FakeReplica&) = delete;

  int running() const { return running_; }

 private:
  struct Sequence {
    uint64_t id = 0, stream = 0;
    uint32_t reports = 0;
    size_t tokens = 0;  // that were reported
  };
  FakeReplica(const ReplicaOptions& options, Stamps* stamps) : options_(options), stamps_(stamps) {}
  void Run();
  void OnMessage(const proto::CoordinatorMessage& message);
  void EndAtOnce(uint64_t id);
  void Step();

  const ReplicaOptions options_;
  Stamps* const stamps_;
  std::unique_ptr<comm::NodeAgent> agent_;
  std::vector<Sequence> sequences_;
  std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace coppice::bench
