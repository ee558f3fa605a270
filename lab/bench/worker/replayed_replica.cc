#include "lab/bench/worker/replayed_replica.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "plan/step_limits.h"

namespace coppice::lab {
namespace {

using worker::DraftShape;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kShared = 0.48;  // speed of each of two processes on the same cores
// The leader's time, milliseconds: to decide a round, for each beam and node, to ask for a draft.
constexpr double kRound_ms = 0.03, kBeam_ms = 0.02, kNode_ms = 0.006, kAsk_ms = 0.04,
                 kStep_ms = 0.06;
constexpr double kInforms = 0.67;  // a missed layer leaves some rows known
constexpr double kPatience = 1.25;
constexpr size_t kFewTokens = 32;

double At(const std::map<int, double>& table, int width) {
  const auto above = table.lower_bound(width);
  if (above == table.end()) return std::prev(above)->second;
  if (above->first == width || above == table.begin()) return above->second;
  const auto below = std::prev(above);
  return below->second +
         (above->second - below->second) * (width - below->first) / (above->first - below->first);
}

enum class Phase { kPrefill, kDrafting, kReady };
enum class Access { kNone, kReading, kOpen };

struct Text {
  uint64_t id = 0;
  int unread = 0, left = 0, prompt = 0;
  double ease = 0;  // added to the log-odds of a layer
  Phase phase = Phase::kPrefill;
  uint64_t order = 0;
  int beams = 1, roots = 1;
  Access access = Access::kNone;
  bool informed = false, came = false, warm = false, read = false;
  DraftShape shape;
  int missing = 0;  // tokens that the draft node has not read
  int sent = 0;
  uint32_t round = 0;
  double asked_s = 0, due_s = 0, overdue_s = 0, deadline_s = 0, last_s = 0;
  uint64_t asked_step = 0;
};

class Replica {
 public:
  Replica(const MachineCosts& costs, const DraftQuality& quality, const ReplayOptions& options)
      : quality_(quality),
        options_(options),
        draws_(options.seed),
        requests_(options.seed + 7),
        machine_(costs, options.seed + 1),
        node_(&machine_) {
    draft_.drafts = options.drafts;
    draft_.chosen = options.width > 0;
    draft_.width = options.width;
    draft_.depth = options.depth;
    if (!options.knows_products) return;
    std::vector<kernels::RowCost> products;
    for (const int rows : costs.padded)
      products.push_back({rows, 1e-3 * (costs.Step_ms(rows) - costs.beside_ms)});
    sizer_.costs()->Expect(products);
  }

  ReplayResult Run() {
    for (int i = 0; i < options_.clients; ++i) Start();
    while (ended_ < options_.requests) {
      Wait();
      TakeForests();
      share_until_s_ =
          options_.groups == ReplayOptions::Groups::kProduct ? ShareUntil() : ShareUntilWhole();
      if (HasWork() && share_until_s_ == 0) Step();
    }
    return {tokens_ / now_s_, static_cast<double>(layers_) / rounds_,
            static_cast<double>(drafted_) / rounds_, static_cast<double>(read_) / last_id_,
            std::move(step_rows_)};
  }

 private:
  bool HasWork() const {
    for (const auto& [id, text] : texts_)
      if (text.phase != Phase::kDrafting) return true;
    return false;
  }

  // ---- Time.
  // The leader computes for `seconds`, if it had the cores for itself.
  void Compute(double seconds) {
    machine_.Moves(now_s_);
    while (seconds > 1e-12) {
      node_.Begin(now_s_);
      const bool both = node_.busy() && machine_.shares_cores();
      const double speed = both ? kShared : 1;
      double next = seconds / speed;
      if (node_.busy()) next = std::min(next, node_.left_s() / speed);
      if (!node_.busy()) next = std::min(next, std::max(1e-9, node_.next_message_s() - now_s_));
      now_s_ += next;
      seconds -= next * speed;
      if (node_.busy()) node_.Work(next * speed, now_s_);
    }
  }
  void Sleep(double until_s) {
    while (now_s_ < until_s) {
      node_.Begin(now_s_);
      double next = until_s - now_s_;
      if (!node_.replies()->empty())
        next = std::min(next, std::max(0.0, node_.replies()->front().arrives_s - now_s_));
      if (node_.busy()) next = std::min(next, node_.left_s());
      if (!node_.busy()) next = std::min(next, std::max(1e-9, node_.next_message_s() - now_s_));
      now_s_ += next;
      if (node_.busy()) node_.Work(next, now_s_);
      if (!node_.replies()->empty() && node_.replies()->front().arrives_s <= now_s_ + 1e-9) {
        now_s_ += 3e-6;
        return;
      }
    }
  }

  // ---- The loop of Engine::Run.
  void Start() {
    Text text;
    text.id = ++last_id_;
    text.prompt = text.unread = requests_.Between(options_.prompt_low, options_.prompt_high);
    text.left = requests_.Between(options_.tokens_low, options_.tokens_high);
    text.ease = 0.4 * requests_.Normal();
    text.order = ++last_order_;
    text.missing = 0;
    Text& at = texts_[text.id] = text;
    if (!draft_.drafts || !WorthPreparing(at)) return;
    Open(&at);
    at.access = Access::kOpen;
  }
  bool WorthPreparing(const Text& text) { return sizer_.WorthPreparing("m", Limits(text)); }
  void Open(Text* text) {
    node_.Open(text->id, text->prompt, now_s_);
    ++read_;
  }

  worker::SizerLimits Limits(const Text& text) const {
    worker::SizerLimits limits;
    limits.beam_width = quality_.beams;
    limits.running = std::max<int>(1, texts_.size());
    limits.draft = draft_;
    limits.max_depth = text.left;
    const int sharers = draft_.chosen ? 1 : limits.running;
    limits.max_nodes = std::max(0, kDefaultMaxRows / sharers - text.beams);
    return limits;
  }
  worker::SizerLimits LimitsNow(const Text& text) const {
    worker::SizerLimits limits = Limits(text);
    limits.roots = all_roots_;
    limits.plain_rows = all_plain_;
    limits.prepared = text.access == Access::kOpen;
    return limits;
  }

  void Wait() {
    if (HasWork() && share_until_s_ == 0) return;
    wait_begin_s_ = now_s_;
    double until_s = now_s_ + 0.2;
    for (const auto& [id, text] : texts_)
      if (text.phase == Phase::kDrafting) until_s = std::min(until_s, text.deadline_s);
    if (share_until_s_ > 0) until_s = std::min(until_s, share_until_s_);
    Sleep(std::max(until_s, now_s_ + 1e-6));
  }

  void TakeForests() {
    auto* replies = node_.replies();
    while (!replies->empty() && replies->front().arrives_s <= now_s_) {
      const auto reply = replies->front();
      replies->pop_front();
      node_late_ = false;
      const auto found = texts_.find(reply.id);
      if (found == texts_.end()) continue;
      Text& text = found->second;
      if (reply.prefilled) {
        text.read = true;
        if (text.access == Access::kReading) text.access = Access::kOpen;
        continue;
      }
      if (reply.round != text.round) continue;
      const double reply_s = now_s_ - text.asked_s;
      if (text.warm)
        mean_reply_s_ = mean_reply_s_ == 0 ? reply_s : 0.8 * mean_reply_s_ + 0.2 * reply_s;
      const bool caught_up = text.warm && text.sent <= static_cast<int>(kFewTokens);
      text.warm = true;
      if (text.phase != Phase::kDrafting) continue;
      text.came = true;
      Move(&text, Phase::kReady);
      if (caught_up) RecordDraft(text, reply);
    }
    for (auto& [id, text] : texts_) {
      if (text.phase != Phase::kDrafting || text.deadline_s > now_s_) continue;
      if (!std::exchange(node_late_, true)) late_since_s_ = now_s_;
      Move(&text, Phase::kReady);
    }
  }
  void RecordDraft(const Text& text, const ReplayedDraftNode::Reply& reply) {
    int due = 0, asked = 0;
    for (const auto& [id, other] : texts_) {
      if (other.asked_step != text.asked_step) continue;
      due += other.phase == Phase::kDrafting;
      asked += other.phase == Phase::kDrafting || (other.phase == Phase::kReady && other.came);
    }
    if (due > 0) return;
    drafting_ = asked;
    sizer_.costs()->RecordDraft(text.shape, now_s_ - text.asked_s, reply.draft_s, drafting_);
  }

  // The time at which the group has all its forests; 0: it has them, and something is ready.
  // group: -1 = all sequences.
  std::optional<double> WholeAt(int group) const {
    bool ready = false;
    double until_s = 0;
    for (const auto& [id, text] : texts_) {
      if (group >= 0 && static_cast<int>(id % 2) != group) continue;
      if (text.phase == Phase::kPrefill) return 0;
      ready |= text.phase == Phase::kReady;
      if (text.phase == Phase::kDrafting) until_s = std::max(until_s, text.deadline_s);
    }
    return until_s > 0 || ready ? std::optional(until_s) : std::nullopt;
  }
  double ShareUntilWhole() {
    if (options_.groups == ReplayOptions::Groups::kOne) return WholeAt(-1).value_or(0);
    const std::optional<double> at[] = {WholeAt(0), WholeAt(1)};
    double until_s = kInf;
    for (const int group : {1 - last_group_, last_group_}) {
      if (!at[group]) continue;
      group_ = group;
      if (*at[group] == 0) return 0;
      until_s = std::min(until_s, *at[group]);
    }
    return until_s == kInf ? 0 : until_s;
  }
  double ShareUntil() const {
    std::vector<worker::DueForest> due;
    worker::ReadyForStep ready;
    for (const auto& [id, text] : texts_) {
      if (text.phase == Phase::kPrefill) return 0;
      if (text.phase == Phase::kDrafting)
        due.push_back(
            {text.due_s, text.roots + text.shape.width * text.shape.depth, text.overdue_s});
    }
    if (due.empty()) return 0;
    for (const auto& [id, text] : texts_) {
      if (text.phase != Phase::kReady) continue;
      ++ready.sequences;
      ready.rows += Rows(text);
      if (text.came) continue;
      ++ready.plain;
      ready.plain_rows += Rows(text);
    }
    return worker::WaitForForests(ready, kDefaultMaxRows, std::move(due), now_s_,
                                  [&](int rows) { return sizer_.costs().Step(rows, false); });
  }

  double ExpectedDraft(DraftShape shape) const { return sizer_.costs().Draft(shape, drafting_); }
  static int Rows(const Text& text) {
    return text.came ? text.roots + text.shape.width * text.shape.depth : text.beams;
  }
  void Move(Text* text, Phase phase) {
    text->phase = phase;
    text->order = ++last_order_;
  }

  void Step() {
    std::vector<Text*> ready, prompts, in_step;
    for (auto& [id, text] : texts_) {
      if (options_.groups == ReplayOptions::Groups::kTwo && static_cast<int>(id % 2) != group_)
        continue;
      if (text.phase == Phase::kReady) ready.push_back(&text);
      if (text.phase == Phase::kPrefill) prompts.push_back(&text);
    }
    const auto by_order = [](const Text* a, const Text* b) { return a->order < b->order; };
    std::sort(ready.begin(), ready.end(), by_order);
    std::sort(prompts.begin(), prompts.end(), by_order);
    int wanted = 0, rows = 0, prompt_rows = 0;
    for (const Text* text : prompts) wanted += text->unread;
    const int room = kDefaultMaxRows - std::min(wanted, kDefaultMaxRows / 4);
    for (Text* text : ready) {
      if (rows + Rows(*text) > room) break;
      rows += Rows(*text);
      in_step.push_back(text);
    }
    int chunk = std::min(kDefaultPrefillChunk, kDefaultMaxRows - rows);
    for (Text* text : prompts) {
      const int read = std::min(text->unread, chunk);
      text->unread -= read;
      chunk -= read;
      rows += read;
      prompt_rows += read;
      if (text->unread == 0 && read > 0) in_step.push_back(text);
    }
    ++step_;
    last_group_ = group_;
    if (prompt_rows == 0) step_rows_.push_back(rows);
    Compute(machine_.Leader_s(kStep_ms));
    const double begin_s = now_s_;
    Compute(machine_.Step_s(rows));
    const int running = static_cast<int>(texts_.size());
    all_roots_ = all_plain_ = 0;
    for (const auto& [id, text] : texts_) {
      all_roots_ += text.roots;
      all_plain_ += text.beams;
    }
    for (Text* text : in_step) {
      Compute(machine_.Leader_s(kRound_ms + kBeam_ms * text->beams +
                                (text->came ? kNode_ms * Rows(*text) : 0)));
      Decide(text);
    }
    bool reading = false;
    for (const auto& [id, text] : texts_) reading |= text.access != Access::kNone && !text.read;
    sizer_.RecordStep(
        {rows, prompt_rows, running, all_plain_, reading, now_s_ - begin_s, now_s_ - last_end_s_});
    last_end_s_ = now_s_;
  }

  void Decide(Text* text) {
    int layers = 1;
    bool missed = false;
    const DraftShape shape = text->came ? text->shape : DraftShape{};
    for (int l = 0; l < shape.depth; ++l) {
      const bool informed = l == 0 && text->informed;
      double p = At(informed ? quality_.informed : quality_.first, shape.width);
      if (l > 0) p *= quality_.deep;
      p = 1 / (1 + (1 - p) / p * std::exp(-text->ease));
      if (draws_.Uniform() >= p) {
        missed = true;
        break;
      }
      ++layers;
    }
    layers = std::min(layers, text->left);
    sizer_.RecordRound("m", quality_.beams, draft_, shape, layers);
    const bool begins = text->phase == Phase::kPrefill;
    ++rounds_;
    layers_ += layers;
    tokens_ += layers;
    drafted_ += text->came;
    text->left -= layers;
    text->missing += layers;
    if (begins) text->beams = quality_.beams;
    const int known = std::min(shape.width, quality_.beams - 1);
    const bool informed =
        missed && known > 0 && draws_.Uniform() < kInforms * known / (quality_.beams - 1);
    text->roots = text->beams - (informed ? draws_.Between(1, known) : 0);
    if (text->left <= 0) {
      node_.Close(text->id);
      texts_.erase(text->id);
      ++ended_;
      Start();
      return;
    }
    text->informed = informed;
    NextRound(text);
  }

  void NextRound(Text* text) {
    ++text->round;
    text->came = false;
    const worker::SizerLimits limits = LimitsNow(*text);
    DraftShape shape = sizer_.Choose("m", limits);
    if (text->access != Access::kOpen) Prepare(text, shape, limits);
    if (text->access != Access::kOpen) shape = {};
    if (node_late_ && now_s_ - late_since_s_ < 1) shape = {};
    text->shape = shape;
    Move(text, Phase::kReady);
    if (shape.depth == 0) return;
    text->asked_s = now_s_;
    text->asked_step = step_;
    text->due_s = now_s_ + kPatience * ExpectedDraft(shape);
    text->overdue_s = now_s_ + kPatience * ExpectedDraft({shape.width, shape.depth + 1});
    text->deadline_s =
        now_s_ + (text->warm && mean_reply_s_ > 0 ? std::clamp(4 * mean_reply_s_, 0.02, 2.0) : 2.0);
    text->sent = text->missing;
    node_.Ask(text->id, {text->round, shape.width, shape.depth, text->roots + text->missing},
              now_s_);
    text->missing = 0;
    Move(text, Phase::kDrafting);
    Compute(machine_.Leader_s(kAsk_ms));
  }
  void Prepare(Text* text, DraftShape shape, const worker::SizerLimits& limits) {
    if (text->access != Access::kNone || !limits.draft.drafts ||
        limits.max_depth < decoding::kAutoDraftDepth)
      return;
    if (shape.depth == 0 && !WorthPreparing(*text)) return;
    Open(text);
    text->access = Access::kReading;
  }

  const DraftQuality quality_;
  const ReplayOptions options_;
  decoding::DraftSize draft_;
  Draws draws_, requests_;
  Machine machine_;
  ReplayedDraftNode node_;
  worker::ForestSizer sizer_;
  std::map<uint64_t, Text> texts_;
  double now_s_ = 0, last_end_s_ = 0, share_until_s_ = 0, wait_begin_s_ = 0;
  double mean_reply_s_ = 0, late_since_s_ = 0;
  bool node_late_ = false;
  int group_ = 0, last_group_ = 0;  // id % 2 of the sequences in this step, and in the last one
  int drafting_ = 1, all_roots_ = 0, all_plain_ = 0, ended_ = 0;
  uint64_t last_id_ = 0, last_order_ = 0, step_ = 0;
  int64_t layers_ = 0, rounds_ = 0, drafted_ = 0, read_ = 0;
  double tokens_ = 0;
  std::vector<int> step_rows_;  // of steps without prompts
};

}  // namespace

std::vector<DraftQuality> Qualities() {
  const std::map<int, double> one = {{1, .54}, {2, .63}, {3, .68}, {4, .71}};
  const std::map<int, double> four = {{1, .32}, {2, .50}, {3, .58}, {4, .63}, {6, .68}, {8, .71}};
  const std::map<int, double> four_informed = {{1, .36}, {2, .53}, {3, .61},
                                               {4, .66}, {6, .70}, {8, .73}};
  return {
      {"one path", 1, one, one, 1},
      {"four beams", 4, four, four_informed, .85},
      {"search of four",
       4,
       {{1, .05}, {2, .11}, {4, .22}, {6, .35}, {8, .42}},
       {{1, .20}, {2, .38}, {4, .61}, {6, .77}, {8, .84}},
       .9},
      {"sixteen beams",
       16,
       {{1, .05}, {4, .25}, {8, .42}, {16, .58}, {24, .64}, {32, .67}},
       {{1, .07}, {4, .28}, {8, .45}, {16, .61}, {24, .66}, {32, .69}},
       .8},
  };
}

ReplayResult Replay(const MachineCosts& costs, const DraftQuality& quality,
                    const ReplayOptions& options) {
  return Replica(costs, quality, options).Run();
}

}  // namespace coppice::lab
