#include "worker/draft_placement.h"

#include <algorithm>
#include <tuple>

namespace coppice::worker {
namespace {

constexpr double kFixedPart = 4;  // a level takes as long as so many sessions, and each of them
constexpr double kGain = 0.1;
constexpr double kMostSurprise = 3;     // one reply counts as at most so many times the mean
constexpr double kMessageDrift = 1.02;  // the least time of messages is forgotten so slowly
constexpr double kAtOnce_s = 1e-4;
constexpr double kForgotten_s = 60;
constexpr double kMuchFaster = 1.3;
constexpr int64_t kFirstMove = 16;  // rounds

}  // namespace

double DraftNodeEstimate::Growth(int sessions) {
  return (kFixedPart + std::max(1, sessions)) / (kFixedPart + 1);
}

void DraftNodeEstimate::RecordSessions(uint64_t all, int own) {
  constexpr uint64_t kMost = 1 << 20;
  others_ = std::max(0, static_cast<int>(std::min(all, kMost)) - own);
}

// A reply that lay unseen came between the last look and this one, and not before the node can have
// made it.
void DraftNodeEstimate::RecordReply(const DraftReplyTimes& times, int own, double now_s) {
  if (times.depth <= 0) return;
  const double messages_s = std::max(0.0, times.reply_s - times.node_s);
  if (replies_ == 0) {
    message_s_ = std::max(0.0, messages_s - times.unseen_s);
  } else {
    message_s_ =
        std::min(message_s_ * (times.unseen_s > kAtOnce_s ? 1 : kMessageDrift), messages_s);
  }
  const double reply_s = std::max(times.node_s + message_s_, times.reply_s - times.unseen_s);
  const double level_s = std::max(0.0, reply_s - message_s_) / times.depth / Growth(others_ + own);
  const double gain = std::max(kGain, 1.0 / ++replies_);
  const double counted_s = replies_ == 1 ? level_s : std::min(level_s, kMostSurprise * level_s_);
  level_s_ += gain * (counted_s - level_s_);
  last_reply_s_ = now_s;
}

void DraftNodeEstimate::RecordReading(int tokens, double seconds) {
  if (tokens <= 0) return;
  const double token_s = seconds / tokens;
  token_s_ = token_s_ == 0 ? token_s : 0.5 * (token_s_ + token_s);
}

bool DraftNodeEstimate::known(double now_s) const {
  return replies_ > 0 && now_s - last_reply_s_ < kForgotten_s;
}

double DraftNodeEstimate::Reply(double depth, int own) const {
  return message_s_ + depth * level_s_ * Growth(others_ + own);
}

double DraftNodeEstimate::Reading(int tokens) const { return tokens * token_s_; }

double ExpectedReply(absl::Span<const DraftNodeState> nodes, int node, int more, double depth,
                     double now_s) {
  const DraftNodeState& state = nodes[node];
  const int own = state.sessions + more;
  if (state.estimate->known(now_s)) return state.estimate->Reply(depth, own);
  double fastest_s = 0;
  for (const DraftNodeState& other : nodes) {
    if (!other.estimate->known(now_s)) continue;
    const double alone_s = other.estimate->Reply(depth, 1 - other.estimate->others());
    if (fastest_s == 0 || alone_s < fastest_s) fastest_s = alone_s;
  }
  return (fastest_s == 0 ? 1 : fastest_s) *
         DraftNodeEstimate::Growth(state.estimate->others() + own);
}

int BestDraftNode(absl::Span<const DraftNodeState> nodes, int except, double depth, double now_s) {
  const auto rank = [&](int i) {
    return std::tuple(nodes[i].health, ExpectedReply(nodes, i, 1, depth, now_s), nodes[i].sessions,
                      nodes[i].order);
  };
  int best = -1;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (i != except && (best < 0 || rank(i) < rank(best))) best = i;
  }
  return best;
}

bool WorthMoving(const SessionMove& move) {
  if (move.rounds_since_move < std::max(kFirstMove, move.rounds_run / 2)) return false;
  if (move.now_s < kMuchFaster * move.then_s) return false;
  const auto rounds = static_cast<double>(std::min(move.rounds_run, move.most_rounds_left));
  return (move.now_s - move.then_s) * rounds > move.reading_s;
}

}  // namespace coppice::worker
