// The commands of leaders that the draft service takes: sessions begin, states come, forests are
// asked for.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "decoding/draft_size.h"
#include "draft_node/draft_service.h"
#include "proto/convert.h"

namespace coppice::draft_node {
namespace {

// The number of positions that a request needs: those of the longest root, and one per level below
// it.
int64_t PositionsNeeded(const DraftSession& session, const decoding::DraftRequest& request) {
  const TokenTree& tree = request.roots.tree;
  std::vector<int64_t> length(tree.rows(), 0);
  int64_t longest = 0;
  for (int i = 0; i < tree.size(); ++i) {
    int64_t& own = length[tree.RowOf(NodeId{i})];
    own = 1 + length[tree.RowOf(tree.parent[i])];
    longest = std::max(longest, own);
  }
  return session.prompt_length() - session.first_row() + int64_t{request.stable_length} + longest +
         request.depth - 1;
}

// The forest, and every level of it, must fit in a step.
absl::Status CheckShape(const decoding::DraftSize& size, const decoding::DraftRequest& request,
                        int max_rows) {
  if (!size.drafts) return absl::InvalidArgumentError("method: it drafts nothing");
  const auto within = [max_rows](int value) { return value >= 1 && value <= max_rows; };
  if (!within(request.width) || !within(request.depth) ||
      !within(size.Nodes(request.width, request.depth))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "width x depth: ", request.width, " x ", request.depth, " is not in [1, ", max_rows, "]"));
  }
  if (size.beams <= max_rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("draft_beams: ", size.beams, " is more than a pass of ", max_rows, " rows"));
}

}  // namespace

void DraftService::Open(const std::string& peer, const proto::OpenDraft& open) {
  const Key key{peer, open.session_id()};
  Drop([&](const Key& other) { return other == key; });
  if (static_cast<int>(slots_.size()) >= options_.max_sessions) {
    return Fail(key, 0, absl::StrCat("all ", options_.max_sessions, " sessions are taken"));
  }
  auto params = proto::DecodingFromMessage(open.decoding());
  if (!params.ok()) return Fail(key, 0, std::string(params.status().message()));
  std::vector<TokenId> prompt(open.prompt().begin(), open.prompt().end());
  const std::vector<TokenId> stable(open.stable_tokens().begin(), open.stable_tokens().end());
  if (prompt.empty()) return Fail(key, 0, "prompt: empty");
  const int positions = runner_->config().max_positions;
  if (const size_t length = prompt.size() + stable.size();
      length > static_cast<size_t>(positions)) {
    return Fail(
        key, 0,
        absl::StrCat("prompt: ", length, " tokens, the draft model has ", positions, " positions"));
  }
  absl::Status tokens = proto::CheckTokens(prompt, runner_->vocab_size(), "prompt");
  tokens.Update(proto::CheckTokens(stable, runner_->vocab_size(), "stable_tokens"));
  if (!tokens.ok()) return Fail(key, 0, std::string(tokens.message()));
  if (params->format_spec.kind != FormatSpec::Kind::kNone) {
    auto format = formats_.Find(params->format_spec, params->stop_ids);
    if (format.ok()) {
      params->format = *std::move(format);
    } else if (!absl::IsFailedPrecondition(format.status())) {
      return Fail(key, 0, std::string(format.status().message()));
    }
  }
  Slot slot;
  slot.session = std::make_unique<DraftSession>(*std::move(params), std::move(prompt), blocks_,
                                                StateNeedsOf(runner_->config()));
  if (open.log_probs()) slot.session->ShowLogProbs();
  const absl::Status extended = slot.session->ExtendStable(static_cast<int>(stable.size()), stable);
  if (!extended.ok()) return Fail(key, 0, std::string(extended.message()));
  slot.last_used_s = clock_->NowSeconds();
  slot.trace_id = proto::TraceFromMessage(open.trace()).trace_id;
  LogFields(spdlog::level::debug, "session begins",
            {{"session", absl::StrCat(open.session_id())},
             {"trace_id", TextOrNone(slot.trace_id)},
             {"prompt_tokens", static_cast<int64_t>(open.prompt_size())}});
  slots_[key] = std::move(slot);
  TellPrefilled(key);  // a prompt of one token needs no prefill
}

void DraftService::Accept(const std::string& peer, const proto::DraftRequest& message) {
  const Key key{peer, message.session_id()};
  auto found = slots_.find(key);
  if (found == slots_.end()) return Fail(key, message.round(), "unknown session");
  Slot& slot = found->second;
  slot.builder.reset();  // a newer round replaces the one in flight
  slot.last_used_s = slot.request_time_s = clock_->NowSeconds();
  slot.model_s = 0;
  const absl::Status legal = CheckStates(message.states(), /*with_roots=*/true);
  if (!legal.ok()) return Fail(key, message.round(), std::string(legal.message()));
  auto request = proto::DraftRequestFromMessage(message, runner_->vocab_size(), state_columns());
  if (!request.ok()) return Fail(key, message.round(), std::string(request.status().message()));
  const int positions = runner_->config().max_positions;
  // A block begins behind the root's row with the root's token, and has so many levels at most.
  const model::BlockDraft& block = runner_->config().block;
  if (block.size > 0) request->depth = std::min(request->depth, block.depth());
  const int of_block = block.size == 0 ? 0 : block.in_place ? 2 : 1;
  if (const int64_t needed = PositionsNeeded(*slot.session, *request) + of_block;
      needed > positions) {
    return Fail(key, request->round,
                absl::StrCat("depth: the request needs ", needed,
                             " positions, the draft model has ", positions));
  }
  absl::Status fits = slot.session->ExtendStable(request->stable_length, request->stable_tokens);
  fits.Update(
      CheckShape(decoding::DraftSizeOf(slot.session->params()), *request, options_.max_rows));
  if (fits.ok()) fits = slot.session->TakeStates(request->states);
  if (!fits.ok()) return Fail(key, request->round, std::string(fits.message()));
  request->state.root_hash = decoding::RootHashes(request->roots, slot.session->stable_hash());
  slot.waiting = std::make_unique<decoding::DraftRequest>(*std::move(request));
  if (!slot.session->prefilling()) Begin(key, &slot);
}

// A request has at least the states of its roots, whose rows are always computed.
absl::Status DraftService::CheckStates(const proto::RowStates& states, bool with_roots) const {
  const bool none = states.count() == 0 && states.trie().empty() && states.values().empty();
  if (state_columns() == 0 && !none) {
    return absl::InvalidArgumentError("states: the draft model of this node takes none");
  }
  if (state_columns() > 0 && with_roots && states.trie().empty()) {
    return absl::InvalidArgumentError(
        "states.trie: empty; the draft model of this node takes the target's state of every root");
  }
  return absl::OkStatus();
}

// A session that was idle for too long has ended without a word, and its leader may wait until the
// prompt is read. One that has failed is reported again, which the leader ignores.
void DraftService::TakeStates(const std::string& peer, const proto::PromptStates& message) {
  const Key key{peer, message.session_id()};
  const auto found = slots_.find(key);
  if (found == slots_.end()) return Fail(key, 0, "unknown session");
  found->second.last_used_s = clock_->NowSeconds();
  absl::Status taken = CheckStates(message.states(), /*with_roots=*/false);
  if (taken.ok()) {
    const auto states =
        proto::StatesFromMessage(message.states(), state_columns(), /*trie_size=*/0);
    taken = states.ok() ? found->second.session->TakeStates(*states) : states.status();
  }
  if (!taken.ok()) Fail(key, RoundOf(found->second), std::string(taken.message()));
}

}  // namespace coppice::draft_node
