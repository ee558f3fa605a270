// On which draft node a session should be: where its drafts are expected soonest. What a node needs
// is measured by its replies, and how busy it is by the sessions of all replicas, which it reports
// with them. Called by DraftClient. No socket, no clock. Thread-compatible.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace coppice::worker {

// A forest that has arrived.
struct DraftReplyTimes {
  int depth = 1;
  double reply_s = 0;   // from the request until the forest was seen
  double unseen_s = 0;  // it may have lain unseen so long, because the engine was busy
  double node_s = 0;    // the node's own part
};

// What a replica knows of one draft node.
class DraftNodeEstimate {
 public:
  // `all` sessions of all replicas are open on the node, of which `own` are this replica's.
  void RecordSessions(uint64_t all, int own);
  void RecordReply(const DraftReplyTimes& times, int own, double now_s);
  // The node has read a prompt of so many tokens, beside its other work.
  void RecordReading(int tokens, double seconds);

  // A reply was measured within the last minute.
  bool known(double now_s) const;
  int others() const { return others_; }  // sessions of other replicas
  // Expected seconds until a forest of `depth` levels is there, while this replica has `own`
  // sessions on the node. 0: no reply was measured.
  double Reply(double depth, int own) const;
  double Reading(int tokens) const;  // expected seconds; 0: not known

  // How much longer a level takes with so many sessions than with one.
  static double Growth(int sessions);

 private:
  double message_s_ = 0;  // the least time of request and reply on their way
  double level_s_ = 0;    // moving mean of a level, if the node had one session
  double token_s_ = 0;    // moving mean of a prompt's token
  int replies_ = 0, others_ = 0;
  double last_reply_s_ = 0;
};

enum class DraftNodeHealth {
  kGood,
  kUnsteady,  // was late recently: takes sessions only if no other node does
  kLate,
};

struct DraftNodeState {
  const DraftNodeEstimate* estimate = nullptr;
  DraftNodeHealth health = DraftNodeHealth::kGood;
  int sessions = 0;    // of this replica
  uint64_t order = 0;  // of nodes that seem equal the first is chosen
};

// Expected seconds of a draft of the node, with `more` sessions than it has. A node of which
// nothing is known is taken to be as fast as the fastest, so it is tried.
double ExpectedReply(absl::Span<const DraftNodeState> nodes, int node, int more, double depth,
                     double now_s);
// The node for one more session, not `except` (-1: any). -1: there is none.
int BestDraftNode(absl::Span<const DraftNodeState> nodes, int except, double depth, double now_s);

// Whether a session should move between two nodes. A sequence is expected to run as many rounds
// more as it has run; these must save the time in which the new node reads the prompt again.
struct SessionMove {
  double now_s = 0, then_s = 0;  // expected seconds of a draft where it is, and where it would be
  double reading_s = 0;
  int64_t rounds_run = 0, rounds_since_move = 0;
  int64_t most_rounds_left = 0;
};
bool WorthMoving(const SessionMove& move);

}  // namespace coppice::worker
