// The leader's side of drafting. Assigns sequences to draft nodes (worker/draft_placement.h), sends
// requests, receives forests, and handles nodes that are late, refuse or die. Never blocks: without
// a draft a sequence has a plain round. Thread-compatible: owned by the engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/channel.h"
#include "decoding/draft_request.h"
#include "decoding/forest.h"
#include "decoding/method.h"
#include "node/energy/energy_shares.h"
#include "plan/step_limits.h"
#include "proto/control.pb.h"
#include "proto/draft.pb.h"
#include "worker/draft_placement.h"
#include "worker/row_states.h"
#include "worker/sent_states.h"
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
  // Replicas with different numbers begin with different nodes while they know nothing of them.
  uint64_t order_seed = 0;
  // The states of the target for drafts that take them, and their fingerprint
  // (model/StatesFingerprint). nullptr and 0: none are kept, and draft nodes that take some are not
  // used. Must outlive the client.
  StateSource* states = nullptr;
  uint64_t states_fingerprint = 0;
  // With the key of the cluster, if it has one.
  comm::ChannelOptions channel;
};

// Why a round has no draft. Label `reason` of rounds_without_draft_total. kNoStates: the drafts take
// states that this replica does not keep, or could not read.
enum class NoDraftReason { kNone, kLate, kDead, kRefused, kMismatch, kNoNode, kReading, kNoStates };
const char* NoDraftReasonName(NoDraftReason reason);

// Why an answer of a draft node is of no use. Label `reason` of drafts_dropped_total.
enum class DroppedDraft { kNoSession, kOtherNode, kOtherRound, kGivenUp };
const char* DroppedDraftName(DroppedDraft reason);

// Why a session has moved to another node, or was opened again. Label `reason` of draft_moves_total.
enum class DraftMove {
  kSlow,     // drafts are expected much sooner on the other node
  kLate,     // the node did not answer
  kGone,     // it left, or the connection was lost
  kRefused,  // it closed the session
};
const char* DraftMoveName(DraftMove reason);

// What one node does for this replica.
struct DraftNodeUse {
  std::string node_id;
  int sessions = 0;
  double mean_reply_s = 0;  // from the request until the forest was seen; 0: none yet
};

struct DraftArrival {
  uint64_t sequence_id = 0;
  decoding::DraftForest forest;
  double draft_s = 0;      // the draft node's own time for the forest
  double model_s = 0;      // the part of draft_s in forward passes
  bool caught_up = false;  // the node had few tokens to read first, so its time is that of a draft
  NoDraftReason failed = NoDraftReason::kNone;  // not kNone: there is no forest
  static DraftArrival Failed(uint64_t sequence_id, NoDraftReason why) {
    DraftArrival arrival;
    arrival.sequence_id = sequence_id;
    arrival.failed = why;
    return arrival;
  }
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

// The name of the draft node of the leader's own process, in logs and metrics.
inline constexpr char kOwnDraft[] = "in-process";

class DraftClient {
 public:
  explicit DraftClient(const DraftClientOptions& options);
  ~DraftClient();

  // nodes: all that are ready now. Sessions on nodes that are gone are lost; their sequences open
  // new ones elsewhere. Nodes whose drafts take other states than are kept here are not used.
  void SetNodes(const proto::DraftNodes& nodes);
  // Adds the draft of this process (draft_node/draft_thread.h) as the node kOwnDraft. It stays
  // whatever SetNodes says, until its channel breaks. takes_states: it takes those that are kept.
  void AddOwn(std::unique_ptr<comm::ClientChannel> channel, bool takes_states = false);
  // Some node that can be used has joined since the start, or the process has a draft.
  bool configured() const { return configured_; }
  // Requests need the states of the tokens that the last verdict took, so KV is committed first.
  bool takes_states() const { return options_.states != nullptr; }

  // Opens a session, so that the draft node prefills while the target does. Does nothing when there
  // are no nodes.
  void Open(const Sequence& sequence);
  // The same between two rounds, if the sequence has no session yet. *read: the node has read the
  // prompt, so drafts may be requested; it reads later tokens with the first request. Not kNone:
  // why no node has the prompt.
  NoDraftReason Prepare(const Sequence& sequence, double now_s, bool* read);
  // Requests the forest of the sequence's next round. kNone: the request was sent, and the answer
  // should be awaited until *deadline_s (absolute). Otherwise the round must be plain, for the
  // returned reason. It sends nothing to a node that is known to be late. A session that would do
  // much better elsewhere begins to move: another node reads the tokens while this one goes on.
  NoDraftReason Ask(const Sequence& sequence, int width, int depth, double now_s,
                    double* deadline_s);
  // Tells the nodes of these sequences that requests follow within microseconds. May be called from
  // any thread, but not while another thread is in a call.
  void Announce(absl::Span<const uint64_t> sequence_ids);
  // Sends states of prompts that can be read now, and of the tokens of sessions that were opened in
  // the middle of a sequence, up to a limit. True: it has reached the limit and should be called
  // again soon. Once per turn of the engine's loop, not while a step runs.
  bool SendStates(absl::Span<Sequence* const> running);
  // Tells the client that the round of this sequence went on without its draft.
  void GaveUp(uint64_t sequence_id, double now_s);
  // The sequence does not want the draft that was requested for it.
  void Withdraw(uint64_t sequence_id);
  void Close(uint64_t sequence_id);

  // Returns the forests and failures of current rounds that have arrived, up to unseen_s seconds
  // ago.
  std::vector<DraftArrival> Receive(double now_s, double unseen_s = 0);
  std::vector<comm::Pollable> sockets() const;
  // The time until which to stay awake for a forest that a node has announced.
  double awake_until_s() const;
  // Joules that draft nodes have reported for the sequence. nullopt: some were not measured, or the
  // node that used them is gone. at_the_end: also nullopt if a report is still missing.
  std::optional<double> EnergyOf(uint64_t sequence_id, bool at_the_end) const;
  bool reading() const;    // some node has not reported yet that it has read a prompt
  uint64_t bytes() const;  // bytes sent and received
  uint64_t state_bytes() const { return state_bytes_; }  // of states sent; a part of bytes()
  // Answers that were dropped, by reason: for a session that is closed or was never opened (so for
  // another request or seed), for a session of another node, for another round than was asked for
  // last, and for a round that went on without it.
  const std::map<DroppedDraft, uint64_t>& dropped() const { return dropped_; }
  int sessions_on(const std::string& node_id) const;
  const std::map<DraftMove, uint64_t>& moves() const { return moves_; }
  std::vector<DraftNodeUse> Nodes() const;

 private:
  struct Node {
    std::string id, endpoint;
    std::unique_ptr<comm::ClientChannel> channel;
    double mean_reply_s = 0;  // moving mean; 0 = none yet
    bool late = false;        // missed a deadline and has not answered since
    double late_since_s = 0;
    double unsteady_until_s = 0, pause_s = 0;  // each time it is late soon again, twice as long
    DraftNodeEstimate estimate;
    uint64_t order = 0;        // DraftNodeState::order
    int sessions = 0;          // those that move here too
    uint64_t breaks_seen = 0;  // connections that were lost
    double awake_until_s = 0;  // stay awake until then: it has announced a forest
    bool measures = false;     // its energy is not part of the replica's figure
    bool own = false;          // in this process
    bool takes_states = false;
  };
  // The node to which a session moves. It is used as soon as it has read the tokens.
  struct Moving {
    std::string node;  // "" = none
    uint64_t wire_id = 0;
    uint32_t stable_sent = 0;
    SentStates states;
    double begun_s = 0;
    double fed_s = 0;  // when it was sent the last states
    int tokens = 0;    // that the node must read
    bool read = false;
    DraftMove why = DraftMove::kSlow;
  };
  struct Session {
    std::string node;          // "" = none
    uint64_t wire_id = 0;      // session_id in messages: never used twice
    std::string trace_id;      // of the request
    uint32_t asked_round = 0;  // 0 = no request outstanding
    AskedForest asked;         // limits of the answer to the outstanding request
    bool waiting = false;      // the engine still wants the answer
    double asked_s = 0;
    size_t tokens_sent = 0;    // tokens sent with the last request
    uint32_t stable_sent = 0;  // generated tokens that the node knows to be stable
    SentStates states;
    bool prefilled = false;      // the node has reported that it has read the prompt
    bool warm = false;           // the node has answered once: its prefill is done
    double refused_until_s = 0;  // the node refused; not asked again before
    double opened_s = 0;
    int tokens_opened = 0;      // that the node must read first
    uint32_t opened_round = 0;  // of the sequence, when it came to the node
    std::optional<DraftMove>
        lost;            // it was lost in a round: rounds are plain until it is read again
    std::string avoids;  // the node that refused it
    Moving moving;
    node::EnergyTally energy;  // energy for all sessions of the sequence
    bool owes_energy = false;  // the node has not reported all that it used for the sequence
  };

  // Which of the nodes can be used, with a log line for each new one that cannot.
  std::vector<proto::DraftNode> Usable(const proto::DraftNodes& message);
  // The nodes as the placement sees them, in the order of nodes_.
  std::vector<DraftNodeState> States(double now_s) const;
  Node* NodeAt(int index);
  // The best node for one more session, not that of this id. nullptr: there is none.
  Node* PickNode(const std::string& except, double now_s);
  Node* NodeOf(const Session& session);
  static constexpr int64_t kMostStateBytes = 4 << 20;  // of one turn
  static uint64_t BytesOf(const Node& node);
  static bool IsLate(const Node& node, double now_s);
  static bool KeepsSilent(const Node& node, double now_s);
  // The node of the session. Opens one if there is none or its node is silent. Not kNone: why there
  // is no node.
  NoDraftReason FindNode(const Sequence& sequence, double now_s, Session* session, Node** node);
  // Opens a session and returns its wire id, 0 if the message could not be sent. begun: the sequence
  // has tokens beyond its prompt, of which the node reads those that all beams share.
  uint64_t SendOpen(Node* node, const Sequence& sequence, bool begun, double now_s,
                    uint32_t* stable_sent);
  bool OpenOn(Node* node, const Sequence& sequence, bool begun, double now_s, Session* session);
  // Lets the session begin to move to the node.
  void BeginMove(Node* node, const Sequence& sequence, DraftMove why, double now_s,
                 Session* session);
  void MoveIfFaster(const Sequence& sequence, double now_s, Session* session);
  void LeaveLateNode(const Sequence& sequence, double now_s, Session* session);
  // Uses the new node if it has read the tokens.
  void EndMove(const Sequence& sequence, double now_s, Session* session);
  void AbandonMove(Session* session, bool tell_node);
  void Settle(uint64_t sequence_id, bool answered);
  // States of a session on one node (draft_client_states.cc).
  enum class Fed { kAll, kAllThereAre, kLimit, kStuck };
  Fed Feed(Node* node, const Sequence& sequence, uint64_t wire_id, int tokens, SentStates* sent);
  NoDraftReason AddStates(Node* node, const Sequence& sequence, Session* session,
                          decoding::DraftRequest* request);
  absl::Status ReadStates(const Sequence& sequence, const WantedRows& rows,
                          decoding::RowStates* states);
  void CloseOn(Node* node, uint64_t wire_id);
  void Drop(Session* session);
  static void Forget(Session* session);
  static void TakeEnergy(const Node& node, const proto::DraftReply& reply, Session* session);
  void LoseSessions(Node* node);
  void NoticeBreaks(double now_s);
  void MarkLate(Node* node, double now_s);
  double Patience(const Node& node, const Session& session) const;
  void Drop(const Node& node, const proto::DraftReply& reply, DroppedDraft why,
            const Session* session);
  void TakeLoad(Node* node, const proto::DraftReply& reply);
  void TakeOfMove(Node* node, const proto::DraftReply& reply, double now_s, Session* session);
  void Take(Node* node, const proto::DraftReply& reply, double now_s, double unseen_s,
            std::vector<DraftArrival>* out);

  DraftClientOptions options_;
  bool configured_ = false;
  std::map<std::string, Node> nodes_;
  std::map<std::string, uint64_t> refused_;        // nodes that cannot be used, with what they take
  std::map<uint64_t, Session> sessions_;           // by sequence id
  std::map<uint64_t, uint64_t> sequence_of_wire_;  // wire id -> sequence id
  std::map<DroppedDraft, uint64_t> dropped_;
  std::vector<DraftArrival> lost_;  // failures found outside Receive
  uint64_t next_wire_id_ = 1;
  uint64_t bytes_before_ = 0;  // of nodes that are gone
  uint64_t state_bytes_ = 0;
  int64_t states_left_ = kMostStateBytes;  // bytes that may still be sent in this turn
  double now_s_ = 0;                       // of the last Receive
  double mean_depth_ = 3;                  // moving mean over requests
  // The sequence whose session moves to a faster node, and the drafts that it has had from there.
  // The next one moves when these have shown how fast the node is, or at settling_until_s_.
  uint64_t settling_ = 0;
  double settling_until_s_ = 0;
  int settled_drafts_ = 0;
  std::map<DraftMove, uint64_t> moves_;
  proto::DraftReply reply_;  // the last reply; kept to reuse its memory
};

}  // namespace coppice::worker
