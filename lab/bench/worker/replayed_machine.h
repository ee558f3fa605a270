// A simulated machine for lab/bench/worker/sizer_replay: what steps of the target and of a draft
// model cost by their rows, how the speed drifts, and the draft node, which shares the cores with
// the target or has its own. Time is simulated; the same seed gives the same times.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace coppice::lab {

// Costs in milliseconds. The logs that they come from: lab/measurements/2026-11-29-sizer.md.
struct MachineCosts {
  std::string name;
  std::vector<std::pair<double, double>> step_ms;  // by rows, ascending; linear between
  double row_ms = 0;                               // of each row beyond the last
  double level_ms = 0, level_row_ms = 0;           // a level of drafts, and each of its rows
  double prompt_row_ms = 0;                        // a row of a prompt that the draft node reads
  bool shares_cores = true;  // target and draft node compute on the same cores
  // What rows are padded to, ascending; empty: they are not.
  std::vector<int> padded = {};
  double beside_ms = 0;  // of a step, besides its matrix products

  double Step_ms(int rows) const;  // on a quiet machine
};
// Two cores with AVX-512 or AVX2, types of weights, and a GPU.
std::vector<MachineCosts> Machines();

// Uniform in [0, 1) and other draws, equal on every platform.
class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}
  double Uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  int Between(int low, int high) { return low + static_cast<int>(Uniform() * (high - low + 1)); }
  double Normal();

 private:
  std::mt19937_64 engine_;
};

class Machine {
 public:
  Machine(const MachineCosts& costs, uint64_t seed)
      : costs_(costs), draws_(seed), levels_(seed + 1) {}
  double Step_s(int rows);  // a step of the target, with noise
  double Level_s(int rows, int forests, int prompt_rows);
  double Leader_s(double ms) { return ms * 1e-3 * Factor(); }  // other work of the leader
  void Moves(double now_s);  // the speed of the machine at this time
  bool shares_cores() const { return costs_.shares_cores; }

 private:
  double Factor();
  const MachineCosts costs_;
  Draws draws_, levels_;
  double level_ = 1, until_s_ = 0;
};

// The draft node: one forward pass for all sequences that wait for a level, with the prompts that
// it reads, as draft_node/draft_service does.
class ReplayedDraftNode {
 public:
  explicit ReplayedDraftNode(Machine* machine) : machine_(machine) {}
  struct Reply {
    uint64_t id = 0;
    uint32_t round = 0;
    double arrives_s = 0, draft_s = 0;
    bool prefilled = false;  // the prompt is read; there is no forest
  };
  struct Request {
    uint32_t round = 0;
    int width = 0, depth = 0, first_rows = 0;  // first_rows: roots, and tokens to catch up with
  };
  void Open(uint64_t id, int prompt, double now_s);
  void Ask(uint64_t id, const Request& request, double now_s);
  void Close(uint64_t id) { sessions_.erase(id); }
  // Begins a step if there is work that has arrived.
  void Begin(double now_s);
  bool busy() const { return left_s_ > 0; }
  double left_s() const { return left_s_; }
  double next_message_s() const;  // +infinity: none is under way
  void Work(double seconds, double now_s);
  std::deque<Reply>* replies() { return &replies_; }

 private:
  struct Session {
    int unread = 0;
    double came_s = 0;  // when its last message arrives
    bool told = false, waits = false;
    Request request;
    int level = 0;
    double begun_s = 0;
    int reading = 0;  // rows of the prompt in this step
    bool drafting = false;
  };
  void End(double now_s);
  Machine* machine_;
  std::map<uint64_t, Session> sessions_;
  std::deque<Reply> replies_;
  double left_s_ = 0;
};

}  // namespace coppice::lab
