#include "lab/bench/worker/replayed_machine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/step_limits.h"

namespace coppice::lab {
namespace {

constexpr double kMessage_s = 0.00008;
constexpr double kForest_ms = 0.04;  // the draft node's choice of one level of one forest
constexpr double kNoise = 0.07, kStall = 0.003;

}  // namespace

std::vector<MachineCosts> Machines() {
  const std::vector<std::pair<double, double>> a = {
      {1, 8.48}, {4, 8.78}, {7, 9.17}, {13, 10.92}, {24, 18.32}};
  const std::vector<std::pair<double, double>> b = {
      {1, 5.75}, {4, 6.20}, {7, 6.45}, {13, 7.14}, {24, 9.76}};
  return {
      {"a-bf16", a, 0.68, 0.45, 0.03, 0.08},
      {"b-bf16", b, 0.34, 0.33, 0.02, 0.05},
      {"a-int8",
       {{1, 4.8}, {2, 4.9}, {4, 5.6}, {7, 6.4}, {13, 8.5}, {24, 12.5}},
       0.36,
       0.45,
       0.03,
       0.08},
      {"a-int4",
       {{1, 3.2}, {2, 3.6}, {4, 4.4}, {7, 5.3}, {13, 8.0}, {24, 12.6}},
       0.40,
       0.45,
       0.03,
       0.08},
      {"avx2", {{1, 11.5}, {6, 12.6}, {8, 17.5}, {16, 33}, {32, 72}}, 2.3, 0.6, 0.08, 0.25},
      {"four-cores", b, 0.34, 0.33, 0.02, 0.05, /*shares_cores=*/false},
      {"gpu", {{1, 3.5}, {200, 3.5}}, 0.0175, 0.30, 0.0, 0.002, false},
      {"gpu-padded",
       {{1, 3.5}, {200, 3.5}},
       0.0175,
       0.30,
       0.0,
       0.002,
       false,
       {1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256, 320, 384, 512},
       0.7},
  };
}

double Draws::Normal() {
  return std::sqrt(-2 * std::log(1 - Uniform())) * std::cos(6.283185307179586 * Uniform());
}

double Machine::Factor() {
  const double stall = draws_.Uniform() < kStall ? 4 : 1;
  return level_ * stall * std::exp(kNoise * draws_.Normal());
}

void Machine::Moves(double now_s) {
  while (now_s >= until_s_) {
    level_ = 1 + 0.35 * levels_.Uniform();
    until_s_ -= 20 * std::log(1 - levels_.Uniform());
  }
}

double MachineCosts::Step_ms(int rows) const {
  if (const auto to = std::lower_bound(padded.begin(), padded.end(), rows); to != padded.end())
    rows = *to;
  const auto& known = step_ms;
  if (rows >= known.back().first) return known.back().second + (rows - known.back().first) * row_ms;
  size_t above = 1;
  while (known[above].first < rows) ++above;
  const auto [low, low_ms] = known[above - 1];
  const auto [high, high_ms] = known[above];
  return low_ms + (rows - low) / (high - low) * (high_ms - low_ms);
}

double Machine::Step_s(int rows) { return costs_.Step_ms(rows) * 1e-3 * Factor(); }

double Machine::Level_s(int rows, int forests, int prompt_rows) {
  return 1e-3 * Factor() *
         (costs_.level_ms + costs_.level_row_ms * rows + kForest_ms * forests +
          costs_.prompt_row_ms * prompt_rows);
}

void ReplayedDraftNode::Open(uint64_t id, int prompt, double now_s) {
  Session session;
  session.unread = prompt;
  session.came_s = now_s + kMessage_s;
  sessions_[id] = session;
}

void ReplayedDraftNode::Ask(uint64_t id, const Request& request, double now_s) {
  Session& session = sessions_.at(id);
  session.request = request;
  session.waits = true;
  session.level = 0;
  session.drafting = false;
  session.came_s = session.begun_s = now_s + kMessage_s;
}

double ReplayedDraftNode::next_message_s() const {
  double next = std::numeric_limits<double>::infinity();
  for (const auto& [id, session] : sessions_)
    if (session.unread > 0 || session.waits) next = std::min(next, session.came_s);
  return next;
}

void ReplayedDraftNode::Begin(double now_s) {
  if (busy()) return;
  int rows = 0, forests = 0, room = kDefaultPrefillChunk;
  for (auto& [id, session] : sessions_) {
    session.reading = 0;
    session.drafting = false;
    if (session.came_s > now_s) continue;
    if (session.unread > 0) {
      session.reading = std::min(session.unread, room);
      room -= session.reading;
    } else if (session.waits) {
      session.drafting = true;
      rows += session.level == 0 ? session.request.first_rows : session.request.width;
      ++forests;
    }
  }
  const int read = kDefaultPrefillChunk - room;
  if (read + rows > 0) left_s_ = machine_->Level_s(rows, forests, read);
}

void ReplayedDraftNode::Work(double seconds, double now_s) {
  left_s_ -= seconds;
  if (left_s_ > 1e-12) return;
  left_s_ = 0;
  End(now_s);
}

void ReplayedDraftNode::End(double now_s) {
  for (auto& [id, session] : sessions_) {
    session.unread -= session.reading;
    if (session.reading > 0 && session.unread == 0)
      replies_.push_back({id, 0, now_s + kMessage_s, 0, true});
    session.reading = 0;
    if (!session.drafting) continue;
    session.drafting = false;
    if (++session.level < session.request.depth) continue;
    session.waits = false;
    replies_.push_back({id, session.request.round, now_s + kMessage_s, now_s - session.begun_s});
  }
}

}  // namespace coppice::lab
