// The leader's side of drafting. Assigns sequences to draft nodes, sends requests, receives
// forests, and handles nodes that are late, refuse or die. Never blocks: without a draft a sequence
// has a plain round. Thread-compatible: owned by the engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/channel.h"
#include "decoding/forest.h"
#include "decoding/method.h"
#include "node/energy/energy_shares.h"
#include "plan/step_limits.h"
#include "proto/control.pb.h"
#include "proto/draft.pb.h"
#include "worker/sequence.h"

namespace coppice::worker {

struct DraftClientOptions {
  // Vocabulary of the target. Forests with other tokens are rejected.
  int vocab_size = 0;
  // Rows of one step of the target: bounds a forest.
  int max_rows = kDefaultMaxRows;
  // A draft is late after deadline_factor x the mean reply time of its node, but never before
  // min_deadline_s and always after max_deadline_s. The first draft of a session, which waits for
  // the node's prefill, has max_deadline_s. A late draft costs one plain round. Raise
  // min_deadline_s on a machine with many stalls.
  double min_deadline_s = 0.02;
  double deadline_factor = 4;
  double max_deadline_s = 2.0;
  // The energy domain of the replica's meter (node/energy/energy_claim.h). 0: no meter. The
  // replica's figure includes draft nodes of the same domain.
  uint64_t energy_domain = 0;
  // With the key of the cluster, if it has one.
  comm::ChannelOptions channel;
};

// Why a round has no draft. Label `reason` of rounds_without_draft_total.
enum class NoDraftReason { kNone, kLate, kDead, kRefused, kMismatch, kNoNode };
const char* NoDraftReasonName(NoDraftReason reason);

// Why an answer of a draft node is of no use. Label `reason` of drafts_dropped_total.
enum class DroppedDraft { kNoSession, kOtherNode, kOtherRound, kGivenUp };
const char* DroppedDraftName(DroppedDraft reason);

struct DraftArrival {
  uint64_t sequence_id = 0;
  decoding::DraftForest forest;
  double draft_s = 0;      // the draft node's own time for the forest
  double model_s = 0;      // the part of draft_s in forward passes
  bool caught_up = false;  // the node had few tokens to read first, so its time is that of a draft
  NoDraftReason failed = NoDraftReason::kNone;  // not kNone: there is no forest
};

// The limits of a request to a draft node. The answer must not exceed them.
struct AskedForest {
  const decoding::MethodRow* method = nullptr;
  int roots = 0, depth = 0;
  int nodes = 0;    // the same limit holds for draws, including copies
  int support = 0;  // entries per proposal
};
// InvalidArgument names the fault: a different number of roots, more nodes or entries than
// requested, or something that the method's verifier refuses. The forest must have passed
// DraftForest::Validate.
absl::Status CheckForest(const decoding::DraftForest& forest, const AskedForest& limits);

class DraftClient {
 public:
  explicit DraftClient(const DraftClientOptions& options);
  ~DraftClient();

  // nodes: all that are ready now. Sessions on nodes that are gone are lost; their sequences open
  // new ones elsewhere.
  void SetNodes(const proto::DraftNodes& nodes);

  // Opens a session, so that the draft node prefills while the target does. Does nothing when there
  // are no nodes.
  void Open(const Sequence& sequence);
  // The same between two rounds, if the sequence has no session yet. *read: the node has read the
  // prompt, so drafts may be requested; it reads later tokens with the first request. Not kNone:
  // why no node has the prompt.
  NoDraftReason Prepare(const Sequence& sequence, double now_s, bool* read);
  // Requests the forest of the sequence's next round. kNone: the request was sent, and the answer
  // should be awaited until *deadline_s (absolute). Otherwise the round must be plain, for the
  // returned reason. It sends nothing to a node that is known to be late.
  NoDraftReason Ask(const Sequence& sequence, int width, int depth, double now_s,
                    double* deadline_s);
  // Tells the nodes of these sequences that requests follow within microseconds. May be called from
  // any thread, but not while another thread is in a call.
  void Announce(absl::Span<const uint64_t> sequence_ids);
  // Tells the client that the round of this sequence went on without its draft.
  void GaveUp(uint64_t sequence_id, double now_s);
  // The sequence does not want the draft that was requested for it.
  void Withdraw(uint64_t sequence_id);
  void Close(uint64_t sequence_id);

  // Returns the forests and failures of current rounds that have arrived.
  std::vector<DraftArrival> Receive(double now_s);
  std::vector<comm::Pollable> sockets() const;
  // The time until which to stay awake for a forest that a node has announced.
  double awake_until_s() const;
  // Joules that draft nodes have reported for the sequence. nullopt: some were not measured, or the
  // node that used them is gone. at_the_end: also nullopt if a report is still missing.
  std::optional<double> EnergyOf(uint64_t sequence_id, bool at_the_end) const;
  bool reading() const;    // some node has not reported yet that it has read a prompt
  uint64_t bytes() const;  // bytes sent and received
  // Answers that were dropped, by reason: for a session that is closed or was never opened (so for
  // another request or seed), for a session of another node, for another round than was asked for
  // last, and for a round that went on without it.
  const std::map<DroppedDraft, uint64_t>& dropped() const { return dropped_; }
  int sessions_on(const std::string& node_id) const;

 private:
  struct Node {
    std::string id, endpoint;
    std::unique_ptr<comm::ClientChannel> channel;
    double mean_reply_s = 0;  // moving mean; 0 = none yet
    bool late = false;        // missed a deadline and has not answered since
    double late_since_s = 0;
    int sessions = 0;
    uint64_t breaks_seen = 0;  // connections that were lost
    double awake_until_s = 0;  // stay awake until then: it has announced a forest
    bool measures = false;     // its energy is not part of the replica's figure
  };
  struct Session {
    std::string node;          // "" = none
    uint64_t wire_id = 0;      // session_id in messages: never used twice
    std::string trace_id;      // of the request
    uint32_t asked_round = 0;  // 0 = no request outstanding
    AskedForest asked;         // limits of the answer to the outstanding request
    bool waiting = false;      // the engine still wants the answer
    double asked_s = 0;
    size_t tokens_sent = 0;      // tokens sent with the last request
    uint32_t stable_sent = 0;    // generated tokens that the node knows to be stable
    bool prefilled = false;      // the node has reported that it has read the prompt
    bool warm = false;           // the node has answered once: its prefill is done
    double refused_until_s = 0;  // the node refused; not asked again before
    node::EnergyTally energy;    // energy for all sessions of the sequence
    bool owes_energy = false;    // the node has not reported all that it used for the sequence
  };

  Node* PickNode();
  Node* NodeOf(const Session& session);
  static bool KeepsSilent(const Node& node, double now_s);
  // The node of the session. Opens one if there is none or its node is silent. Not kNone: why there
  // is no node.
  NoDraftReason FindNode(const Sequence& sequence, double now_s, Session* session, Node** node);
  bool OpenOn(Node* node, const Sequence& sequence, Session* session);
  void Drop(Session* session);
  static void Forget(Session* session);
  static void TakeEnergy(const Node& node, const proto::DraftReply& reply, Session* session);
  void LoseSessions(Node* node);
  void NoticeBreaks(double now_s);
  void MarkLate(Node* node, double now_s);
  double Patience(const Node& node, const Session& session) const;
  void Drop(const Node& node, const proto::DraftReply& reply, DroppedDraft why,
            const Session* session);
  void Take(Node* node, const proto::DraftReply& reply, double now_s,
            std::vector<DraftArrival>* out);

  DraftClientOptions options_;
  std::map<std::string, Node> nodes_;
  std::map<uint64_t, Session> sessions_;           // by sequence id
  std::map<uint64_t, uint64_t> sequence_of_wire_;  // wire id -> sequence id
  std::map<DroppedDraft, uint64_t> dropped_;
  std::vector<DraftArrival> lost_;  // failures found outside Receive
  uint64_t next_wire_id_ = 1;
  proto::DraftReply reply_;  // the last reply; kept to reuse its memory
};

}  // namespace coppice::worker
