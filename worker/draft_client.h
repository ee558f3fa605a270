// The leader's side of drafting: which draft node serves which sequence, requests out, forests in,
// and what to do when a node is late, refuses, or dies. Never blocks; a missing draft only means a
// plain step. Thread-compatible: the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/channel.h"
#include "decoding/forest.h"
#include "decoding/method.h"
#include "proto/control.pb.h"
#include "proto/draft.pb.h"
#include "worker/sequence.h"

namespace coppice::worker {

struct DraftClientOptions {
  int vocab_size = 0;
  int max_rows = 512;  // of a pass: bounds one forest
  double min_deadline_s =
      0.02;  // a draft is late after max(min, factor x its node's mean), at most max
  double deadline_factor = 4;
  double max_deadline_s = 2.0;
};

// Why a round went without a draft; the reason label of draft_fallbacks_total.
enum class Fallback { kNone, kLate, kDead, kRefused, kMismatch, kNoNode };
const char* FallbackName(Fallback fallback);

struct DraftArrival {
  uint64_t sequence_id = 0;
  decoding::DraftForest forest;
  double draft_s = 0;                 // the node's own time for it
  double model_s = 0;                 // of which forward passes
  Fallback failed = Fallback::kNone;  // not kNone: there is no forest
};

// What a draft node was asked for: its answer must keep within it.
struct AskedForest {
  const decoding::MethodRow* method = nullptr;
  int roots = 0, depth = 0;
  int nodes = 0;    // and draws, copies counted
  int support = 0;  // entries of a proposal
};
// InvalidArgument names what is wrong: another number of roots, more than was asked for, or what
// the method's verifier refuses. The forest has passed DraftForest::Validate.
absl::Status CheckForest(const decoding::DraftForest& forest, const AskedForest& limits);

class DraftClient {
 public:
  explicit DraftClient(const DraftClientOptions& options);
  ~DraftClient();

  // All draft nodes that are ready now; sessions on vanished ones are lost (their sequences reopen
  // elsewhere).
  void SetNodes(const proto::DraftNodes& nodes);

  // Opens a session so that the node can prefill while the target does. No effect without nodes.
  void Open(const Sequence& sequence);
  // Asks for the forest of the sequence's next round. kNone: it is on the way, until *deadline_s
  // (absolute). Otherwise the round must go plain for this reason. A node that is known to be late
  // is not waited for.
  Fallback Ask(const Sequence& sequence, int width, int depth, double now_s, double* deadline_s);
  // Tells the nodes of these sequences that requests follow within microseconds. Any thread, as
  // long as no other calls.
  void Announce(absl::Span<const uint64_t> sequence_ids);
  // The round of this sequence went on without its draft.
  void GaveUp(uint64_t sequence_id, double now_s);
  void Close(uint64_t sequence_id);

  // Forests and failures of current rounds that have arrived.
  std::vector<DraftArrival> Receive(double now_s);
  std::vector<comm::Pollable> sockets() const;
  // A node has announced a forest: until then its arrival is worth staying awake for.
  double awake_until_s() const;
  uint64_t bytes() const;  // sent and received
  int sessions_on(const std::string& node_id) const;

 private:
  struct Node {
    std::string id, endpoint;
    std::unique_ptr<comm::ClientChannel> channel;
    double mean_reply_s = 0;  // moving; 0 = none yet
    bool late = false;        // missed a deadline and has answered nothing since
    double late_since_s = 0;
    int sessions = 0;
    uint64_t breaks_seen = 0;  // connections that were lost
    double awake_until_s = 0;  // it has announced a forest
  };
  struct Session {
    std::string node;          // "" = none
    uint64_t wire_id = 0;      // session_id on the wire: never used twice
    uint32_t asked_round = 0;  // 0 = no request outstanding
    AskedForest asked;         // of the answer to it
    bool waiting = false;      // the engine still wants the answer
    double asked_s = 0;
    uint32_t stable_sent = 0;    // generated tokens the node knows as stable
    bool warm = false;           // has answered once: its prefill is done
    double refused_until_s = 0;  // the node said no; not asked again before
  };

  Node* PickNode();
  Node* NodeOf(const Session& session);
  bool OpenOn(Node* node, const Sequence& sequence, Session* session);
  void Drop(Session* session);
  void LoseSessions(Node* node);
  void NoticeBreaks(double now_s);
  void MarkLate(Node* node, double now_s);
  double Patience(const Node& node, const Session& session) const;
  void Take(Node* node, const proto::DraftReply& reply, double now_s,
            std::vector<DraftArrival>* out);

  DraftClientOptions options_;
  std::map<std::string, Node> nodes_;
  std::map<uint64_t, Session> sessions_;           // by sequence id
  std::map<uint64_t, uint64_t> sequence_of_wire_;  // wire id -> sequence id
  std::vector<DraftArrival> lost_;                 // failures found outside Receive
  uint64_t next_wire_id_ = 1;
  proto::DraftReply reply_;  // the last one; kept for its memory
};

}  // namespace coppice::worker
