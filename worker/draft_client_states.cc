// States of the target for draft nodes whose drafts take them: of prompts as they are read, and of
// the tokens that verdicts took with each request.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "proto/convert.h"
#include "worker/draft_client.h"

namespace coppice::worker {
namespace {

constexpr int64_t kMessageBytes = 1 << 20;  // of states in one message, but at least one row

}  // namespace

// A node of a version that knows no states has none to take.
std::vector<proto::DraftNode> DraftClient::Usable(const proto::DraftNodes& message) {
  std::vector<proto::DraftNode> usable;
  std::map<std::string, uint64_t> refused;
  for (const proto::DraftNode& node : message.nodes()) {
    if (node.states() == 0 || node.states() == options_.states_fingerprint) {
      usable.push_back(node);
      continue;
    }
    refused[node.node_id()] = node.states();
    const auto before = refused_.find(node.node_id());
    if (before != refused_.end() && before->second == node.states()) continue;
    spdlog::warn(
        "draft node {} is not used: its draft takes hidden states of the target, and this "
        "worker keeps {}; start the worker with --states_for and the folder of that draft",
        node.node_id(), options_.states_fingerprint == 0 ? "none" : "those for another draft");
  }
  refused_ = std::move(refused);
  return usable;
}

bool DraftClient::SendStates(absl::Span<Sequence* const> running) {
  if (!takes_states()) return false;
  bool more = false;
  for (const Sequence* sequence : running) {
    const auto found = sessions_.find(sequence->id);
    if (found == sessions_.end()) continue;
    Session& session = found->second;
    Node* node = NodeOf(session);
    if (node != nullptr && node->takes_states) {
      more |= Feed(node, *sequence, session.wire_id, session.tokens_opened, &session.states) ==
              Fed::kLimit;
    }
    Moving& moving = session.moving;
    const auto there = nodes_.find(moving.node);
    if (there == nodes_.end() || !there->second.takes_states) continue;
    const uint32_t before = moving.states.rows();
    more |= Feed(&there->second, *sequence, moving.wire_id, moving.tokens, &moving.states) ==
            Fed::kLimit;
    if (moving.states.rows() > before) moving.fed_s = now_s_;
  }
  return more;
}

// Sends the states of the tokens that the session was opened with. Later ones go with requests.
DraftClient::Fed DraftClient::Feed(Node* node, const Sequence& sequence, uint64_t wire_id,
                                   int tokens, SentStates* sent) {
  const auto end = static_cast<uint32_t>(tokens);
  if (sent->rows() >= end) return Fed::kAll;
  const int64_t row_bytes = int64_t{2} * options_.states->columns();
  const auto most = static_cast<uint32_t>(std::max<int64_t>(1, kMessageBytes / row_bytes));
  const uint32_t readable = std::min(end, options_.states->Readable(sequence));
  while (sent->rows() < readable) {
    const uint32_t left = readable - sent->rows();
    // A long prompt keeps no short one waiting, and what the node has not taken yet waits in this
    // process.
    if (left > most && states_left_ <= 0) return Fed::kLimit;
    if (left > most && node->channel->socket().writing) return Fed::kStuck;
    decoding::RowStates states;
    if (!ReadStates(sequence, {sent->rows(), std::min(left, most), {}}, &states).ok())
      return Fed::kStuck;
    proto::DraftCommand command;
    command.mutable_states()->set_session_id(wire_id);
    *command.mutable_states()->mutable_states() = proto::StatesToMessage(states);
    if (!node->channel->Send(command).ok()) return Fed::kStuck;
    sent->Sent(states.first + states.count);
    state_bytes_ += states.count * row_bytes;
    states_left_ -= states.count * row_bytes;
  }
  return sent->rows() >= end ? Fed::kAll : Fed::kAllThereAre;
}

// Adds the states of the rows that the node may lack. kReading: it has not got all that come before
// them.
NoDraftReason DraftClient::AddStates(Node* node, const Sequence& sequence, Session* session,
                                     decoding::DraftRequest* request) {
  const Fed fed = Feed(node, sequence, session->wire_id, session->tokens_opened, &session->states);
  if (fed == Fed::kAllThereAre) return NoDraftReason::kNoStates;
  if (fed != Fed::kAll) return NoDraftReason::kReading;
  SentStates sent = session->states;  // they are those only if the request is sent
  SentStates::Lacking lacking = sent.Ask(sequence.decoder->paths(), StablePath(sequence),
                                         request->roots, static_cast<int>(sequence.prompt.size()));
  if (!ReadStates(sequence, lacking.rows, &request->states).ok()) return NoDraftReason::kNoStates;
  session->states = std::move(sent);
  request->states.nodes = std::move(lacking.nodes);
  return NoDraftReason::kNone;
}

absl::Status DraftClient::ReadStates(const Sequence& sequence, const WantedRows& rows,
                                     decoding::RowStates* states) {
  states->first = rows.first;
  states->count = rows.count;
  const absl::Status read = options_.states->Read(sequence, rows, &states->values);
  if (read.ok()) return read;
  LogFields(spdlog::level::warn, std::string(read.message()),
            {{"trace_id", TextOrNone(sequence.trace.trace_id)}});
  return read;
}

}  // namespace coppice::worker
