// For tests: states that are a function of the tokens, and a draft node that takes them. The node
// checks each state against the tokens that it was sent, and that it lacks none. It keeps as little
// as a node may: of a request that a newer one replaced, nothing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "proto/convert.h"
#include "sampling/rng.h"
#include "tests/worker/fake_draft_node.h"
#include "worker/row_states.h"

namespace coppice::worker {

// [columns] The state of the last of these tokens: finite numbers.
inline std::vector<uint16_t> StateOf(absl::Span<const TokenId> tokens, int columns) {
  uint64_t hash = sampling::kRootHash;
  for (const TokenId token : tokens) hash = sampling::ExtendHash(hash, token);
  std::vector<uint16_t> state;
  for (int c = 0; c < columns; ++c) {
    hash = sampling::ExtendHash(hash, c);
    state.push_back(static_cast<uint16_t>(hash >> 13) & 0xbfff);
  }
  return state;
}

class TokenStates : public StateSource {
 public:
  explicit TokenStates(int columns) : columns_(columns) {}
  int columns() const override { return columns_; }
  uint32_t Readable(const Sequence& sequence) const override {
    return std::min(most_readable, static_cast<uint32_t>(Stable(sequence).size()));
  }
  absl::Status Read(const Sequence& sequence, const WantedRows& rows,
                    std::vector<uint16_t>* out) override {
    ++reads;
    if (fails) return absl::FailedPreconditionError("states: row 1 has none");
    out->clear();
    const auto add = [&](std::vector<TokenId> before) {
      const std::vector<uint16_t> state = StateOf(before, columns_);
      out->insert(out->end(), state.begin(), state.end());
    };
    const std::vector<TokenId> stable = Stable(sequence);
    for (uint32_t row = rows.first; row < rows.first + rows.count; ++row)
      add({stable.begin(), stable.begin() + row});
    for (const decoding::PathId path : rows.paths) {
      std::vector<TokenId> before = sequence.prompt;
      const auto tokens = sequence.decoder->paths().Tokens(sequence.decoder->paths().parent(path));
      before.insert(before.end(), tokens.begin(), tokens.end());
      add(before);
    }
    return absl::OkStatus();
  }

  uint32_t most_readable = 1u << 30;
  bool fails = false;
  int reads = 0;  // calls

 private:
  static std::vector<TokenId> Stable(const Sequence& sequence) {
    std::vector<TokenId> tokens = sequence.prompt;
    const auto shared = sequence.decoder->paths().Tokens(StablePath(sequence));
    tokens.insert(tokens.end(), shared.begin(), shared.end());
    return tokens;
  }
  const int columns_;
};

class StatesNode {
 public:
  // state_of: the state of the last of these tokens.
  using StateOfTokens = std::function<std::vector<uint16_t>(absl::Span<const TokenId>)>;
  StatesNode(std::unique_ptr<comm::ServerChannel> channel, int columns, int vocab_size,
             StateOfTokens state_of)
      : columns_(columns),
        vocab_size_(vocab_size),
        state_of_(std::move(state_of)),
        node_(std::make_unique<FakeDraftNode>(std::move(channel))) {}
  FakeDraftNode* node() { return node_.get(); }

  // Takes what has arrived within `patience_ms`, until a request for a draft.
  std::optional<proto::DraftRequest> NextRequest(int patience_ms = 2000) {
    for (int waited_ms = 0; waited_ms <= patience_ms; waited_ms += 5) {
      while (auto command = node_->TryNext()) {
        if (command->has_draft()) {
          Ask(command->draft());
          return command->draft();
        }
        if (command->has_open()) Open(command->open());
        if (command->has_states()) Take(command->states());
        if (command->has_close()) sessions_.erase(command->close().session_id());
      }
      if (waited_ms < patience_ms) comm::Poll({node_->socket()}, 5);
    }
    return std::nullopt;
  }
  void TakeAll() { EXPECT_FALSE(NextRequest(0).has_value()); }
  // The node has computed all rows of the request.
  proto::DraftReply Answer(const proto::DraftRequest& request) {
    Session& session = sessions_.at(request.session_id());
    session.computed = std::move(session.asked);
    session.answered_length = session.tokens.size();
    session.outstanding = false;
    return ReplyTo(request);
  }
  uint64_t last_opened() const { return last_opened_; }
  // It has the states of all tokens that the session was opened with.
  bool read(uint64_t session) const {
    const auto found = sessions_.find(session);
    return found != sessions_.end() && found->second.held.size() + 1 >= found->second.opened;
  }
  // Prompt and stable tokens of the session.
  const std::vector<TokenId>& tokens(uint64_t session) const {
    return sessions_.at(session).tokens;
  }
  int states_taken() const { return states_taken_; }
  size_t longest_message() const { return longest_message_; }

 private:
  struct Session {
    std::vector<TokenId> tokens;  // prompt, stable tokens
    size_t prompt = 0, opened = 0;
    std::set<uint32_t> held;                  // rows whose states came with PromptStates
    std::set<std::vector<TokenId>> computed;  // rows beyond these, by all their tokens
    std::set<std::vector<TokenId>> asked;     // of the outstanding request
    size_t answered_length = 0;               // tokens of the last request that was answered
    bool outstanding = false;
  };
  void Open(const proto::OpenDraft& open) {
    Session& session = sessions_[open.session_id()] = {};
    session.tokens.assign(open.prompt().begin(), open.prompt().end());
    session.prompt = session.tokens.size();
    session.tokens.insert(session.tokens.end(), open.stable_tokens().begin(),
                          open.stable_tokens().end());
    session.opened = session.answered_length = session.tokens.size();
    last_opened_ = open.session_id();
  }
  void Take(const proto::PromptStates& message) {
    ASSERT_EQ(sessions_.count(message.session_id()), 1u);
    Session& session = sessions_.at(message.session_id());
    const auto states = proto::StatesFromMessage(message.states(), columns_, 0);
    ASSERT_TRUE(states.ok()) << states.status();
    longest_message_ = std::max(longest_message_, message.ByteSizeLong());
    ASSERT_GE(states->first, 1u);
    ASSERT_LE(states->first + states->count, session.opened);
    for (uint32_t i = 0; i < states->count; ++i) {
      const uint32_t row = states->first + i;
      EXPECT_TRUE(session.held.insert(row).second) << "row " << row << " was sent twice";
      Check(*states, i, {session.tokens.begin(), session.tokens.begin() + row});
    }
  }
  void Check(const decoding::RowStates& states, size_t entry, std::vector<TokenId> before) {
    ++states_taken_;
    const auto values = absl::MakeConstSpan(states.values).subspan(entry * columns_, columns_);
    EXPECT_EQ(std::vector<uint16_t>(values.begin(), values.end()), state_of_(before))
        << "the row after " << before.size() << " tokens";
  }
  void Ask(const proto::DraftRequest& message) {
    ASSERT_EQ(sessions_.count(message.session_id()), 1u);
    Session& session = sessions_.at(message.session_id());
    const auto request = proto::DraftRequestFromMessage(message, vocab_size_, columns_);
    ASSERT_TRUE(request.ok()) << request.status();
    const size_t length = session.prompt + request->stable_length;
    ASSERT_EQ(session.tokens.size() + request->stable_tokens.size(), length);
    session.tokens.insert(session.tokens.end(), request->stable_tokens.begin(),
                          request->stable_tokens.end());
    if (session.outstanding) {  // what was computed beyond the prefix may be gone
      session.computed.clear();
    }
    session.outstanding = true;
    session.asked.clear();
    std::set<std::vector<TokenId>> sent;
    const auto take = [&](size_t entry, const std::vector<TokenId>& row) {
      EXPECT_EQ(session.computed.count(row), 0u) << "sent although it is known";
      EXPECT_TRUE(sent.insert(row).second);
      Check(request->states, entry, {row.begin(), row.end() - 1});
    };
    const decoding::RowStates& states = request->states;
    for (uint32_t i = 0; i < states.count; ++i) {
      ASSERT_LT(states.first + i, session.tokens.size());
      EXPECT_GE(states.first + i, session.answered_length) << "sent although it is known";
      take(i, {session.tokens.begin(), session.tokens.begin() + states.first + i + 1});
    }
    for (size_t i = 0; i < states.nodes.size(); ++i) {
      std::vector<TokenId> row = session.tokens;
      request->roots.tree.AppendPath(states.nodes[i], &row);
      take(states.count + i, row);
    }
    const auto need = [&](const std::vector<TokenId>& row) {
      session.asked.insert(row);
      EXPECT_TRUE(sent.count(row) > 0 || session.computed.count(row) > 0)
          << "no state for row " << row.size() - 1 << " of " << session.tokens.size();
    };
    for (size_t row = 1; row < session.tokens.size(); ++row) {
      if (row < session.opened ? session.held.count(row) > 0 : row < session.answered_length)
        continue;
      need({session.tokens.begin(), session.tokens.begin() + row + 1});
    }
    for (int i = 0; i < request->roots.tree.size(); ++i) {
      std::vector<TokenId> row = session.tokens;
      request->roots.tree.AppendPath(NodeId{i}, &row);
      need(row);
    }
  }

  const int columns_, vocab_size_;
  const StateOfTokens state_of_;
  std::unique_ptr<FakeDraftNode> node_;
  std::map<uint64_t, Session> sessions_;
  uint64_t last_opened_ = 0;
  int states_taken_ = 0;
  size_t longest_message_ = 0;
};

}  // namespace coppice::worker
