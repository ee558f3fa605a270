#include "lab/bench/routing/routing_simulation.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "model/kv/block_manager.h"
#include "plan/step_plan.h"

namespace coppice::lab {
namespace {

using coordinator::Node;
using coordinator::RoutedPrompt;
using coordinator::Router;
using Tokens = std::vector<TokenId>;

// A step: reading the weights, and each row. A prompt takes up to kChunk rows of a step.
constexpr double kStep_s = 0.010, kRow_s = 0.00005;
constexpr int kChunk = 512;
constexpr double kThink_s = 2;  // between the turns of a chat
constexpr double kNever = std::numeric_limits<double>::infinity();

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int Between(int least, int most) {
    return least + static_cast<int>(engine_() % static_cast<uint64_t>(most - least + 1));
  }
  Tokens Text(int tokens) {
    Tokens text;
    for (int i = 0; i < tokens; ++i) text.push_back(Between(0, 30000));
    return text;
  }

 private:
  std::mt19937_64 engine_;
};

struct Job {
  double arrival_s = 0, first_token_s = 0;
  Tokens prompt, answer;
  std::vector<Tokens> later;  // what the client of a chat says in its later turns, first first
  int64_t blocks() const {
    return static_cast<int64_t>(prompt.size() + answer.size()) / kBlockSize + 8;
  }
};

struct Active {
  Job job;
  RoutedPrompt routed = {};
  model::SequenceHandle handle = 0;
  size_t read = 0, decoded = 0;
};

struct Replica {
  Node node;
  std::unique_ptr<model::BlockManager> cache;
  std::deque<Active> active;
  double free_s = 0;  // when its step ends
  int64_t sequences = 0, rows = 0;
  int64_t blocks = 0;  // of the active ones, each by itself
};

Tokens Join(const Tokens& a, const Tokens& b) {
  Tokens joined = a;
  joined.insert(joined.end(), b.begin(), b.end());
  return joined;
}

std::deque<Job> MakeJobs(const RoutingLoad& load) {
  Draw draw(load.seed);
  std::vector<Tokens> systems;
  for (int i = 0; i < load.chat_systems; ++i) systems.push_back(draw.Text(load.chat_system_tokens));
  const Tokens question_system = draw.Text(load.question_system_tokens);
  const Tokens common = draw.Text(load.common_tokens);
  std::vector<Job> jobs;
  for (int i = 0; i < load.chats; ++i) {
    Job job;
    job.prompt = Join(systems[i % load.chat_systems], draw.Text(draw.Between(20, 200)));
    for (int turn = 1; turn < load.chat_turns; ++turn)
      job.later.push_back(draw.Text(draw.Between(20, 200)));
    jobs.push_back(std::move(job));
  }
  for (int i = 0; i < load.questions; ++i)
    jobs.push_back({.prompt = Join(question_system, draw.Text(draw.Between(20, 100)))});
  for (int i = 0; i < load.singles; ++i)
    jobs.push_back({.prompt = Join(common, draw.Text(draw.Between(100, 1500)))});
  for (size_t i = jobs.size(); i > 1; --i)
    std::swap(jobs[i - 1], jobs[draw.Between(0, static_cast<int>(i) - 1)]);
  double now_s = 0;
  for (Job& job : jobs) {
    job.answer = draw.Text(draw.Between(50, 300));
    // Between half and one and a half of the mean.
    now_s += draw.Between(500, 1500) / 1000.0 / load.arrivals_per_s;
    job.arrival_s = now_s;
  }
  return {std::make_move_iterator(jobs.begin()), std::make_move_iterator(jobs.end())};
}

class Simulation {
 public:
  Simulation(const RoutingLoad& load, const RoutingRule& rule)
      : load_(load), rule_(rule), jobs_(MakeJobs(load)), draw_(load.seed + 1) {
    for (int i = 0; i < load.replicas; ++i) {
      Replica& replica = replicas_.emplace_back();
      replica.node.id = absl::StrCat("replica-", i);
      replica.node.registration.set_kv_blocks_total(load.kv_blocks);
      replica.cache = NewCache();
    }
  }

  RoutingResult Run() {
    while (true) {
      double next_s = jobs_.empty() ? kNever : jobs_.front().arrival_s;
      for (const Replica& replica : replicas_) {
        if (!replica.active.empty()) next_s = std::min(next_s, replica.free_s);
      }
      if (load_.dies >= 0 && !dead_) next_s = std::min(next_s, load_.dies_s);
      if (next_s == kNever) break;
      Advance(std::max(now_s_, next_s));
      if (load_.dies >= 0 && !dead_ && now_s_ >= load_.dies_s) Die(&replicas_[load_.dies]);
      while (!jobs_.empty() && jobs_.front().arrival_s <= now_s_) {
        waiting_.push_back(std::move(jobs_.front()));
        jobs_.pop_front();
      }
      StartWaiting();
      for (Replica& replica : replicas_) {
        if (!replica.active.empty() && replica.free_s <= now_s_) Step(&replica);
      }
    }
    return Finish();
  }

 private:
  std::unique_ptr<model::BlockManager> NewCache() const {
    return std::make_unique<model::BlockManager>(
        model::BlockManagerOptions{.num_blocks = load_.kv_blocks + 1});
  }

  void Advance(double to_s) {
    size_t most = 0, fewest = std::numeric_limits<size_t>::max();
    for (const Replica& replica : replicas_) {
      most = std::max(most, replica.active.size());
      fewest = std::min(fewest, replica.active.size());
    }
    gap_ += static_cast<double>(most - fewest) * (to_s - now_s_);
    now_s_ = to_s;
  }

  void StartWaiting() {
    while (!waiting_.empty()) {
      Job& job = waiting_.front();
      std::vector<const Node*> room;
      for (const Replica& replica : replicas_) {
        if (replica.blocks + job.blocks() <= load_.kv_blocks) room.push_back(&replica.node);
      }
      const std::string id = rule_(router_, room, job.prompt);
      if (id.empty()) return;
      const auto chosen =
          std::find_if(replicas_.begin(), replicas_.end(),
                       [&](const Replica& replica) { return replica.node.id == id; });
      RoutedPrompt routed(job.prompt);
      router_.Reserve(chosen->node, routed, job.blocks());
      ++chosen->sequences;
      chosen->blocks += job.blocks();
      chosen->active.push_back({std::move(job), std::move(routed)});
      waiting_.pop_front();
      Active& active = chosen->active.back();
      int cached = 0;
      active.handle = chosen->cache->Open(active.job.prompt, &cached);
      active.read = static_cast<size_t>(cached);
      result_.prompt_tokens += static_cast<int64_t>(active.job.prompt.size());
      result_.cached_tokens += cached;
      chosen->free_s = std::max(chosen->free_s, now_s_);
    }
  }

  // One step of everything that runs: a row of each sequence that decodes, and chunks of prompts,
  // the oldest first.
  void Step(Replica* replica) {
    size_t chunk = kChunk, rows = 0;
    std::vector<Active*> decoding;
    for (Active& active : replica->active) {
      const Tokens& prompt = active.job.prompt;
      if (active.read == prompt.size()) {
        decoding.push_back(&active);
        continue;
      }
      const size_t part = std::min(chunk, prompt.size() - active.read);
      Append(replica, active, absl::MakeSpan(prompt).subspan(active.read, part));
      active.read += part;
      chunk -= part;
      rows += part;
    }
    rows += decoding.size();
    replica->rows += static_cast<int64_t>(rows);
    replica->free_s = now_s_ + kStep_s + kRow_s * static_cast<double>(rows);
    for (Active* active : decoding) {
      if (active->decoded == 0) active->job.first_token_s = replica->free_s;
      Append(replica, *active, {&active->job.answer[active->decoded++], 1});
    }
    replica->cache->EndRound();
    const auto over = [&](const Active& active) {
      if (active.decoded < active.job.answer.size()) return false;
      End(replica, active);
      return true;
    };
    replica->active.erase(std::remove_if(replica->active.begin(), replica->active.end(), over),
                          replica->active.end());
    replica->cache->EndRound();
  }

  static void Append(Replica* replica, const Active& active, absl::Span<const TokenId> tokens) {
    COPPICE_CHECK(replica->cache->AppendPrefix(active.handle, tokens).ok());
  }

  void End(Replica* replica, const Active& active) {
    replica->cache->Close(active.handle);
    router_.Release(replica->node.id, active.routed, active.job.blocks());
    replica->blocks -= active.job.blocks();
    first_tokens_.push_back(active.job.first_token_s - active.job.arrival_s);
    latency_ += replica->free_s - active.job.arrival_s;
    result_.makespan_s = std::max(result_.makespan_s, replica->free_s);
    ++result_.finished;
    if (active.job.later.empty()) return;
    Job next;
    next.arrival_s = replica->free_s + kThink_s;
    next.prompt = Join(Join(active.job.prompt, active.job.answer), active.job.later.front());
    next.later.assign(active.job.later.begin() + 1, active.job.later.end());
    next.answer = draw_.Text(draw_.Between(50, 300));
    const auto place =
        std::upper_bound(jobs_.begin(), jobs_.end(), next.arrival_s,
                         [](double at_s, const Job& job) { return at_s < job.arrival_s; });
    jobs_.insert(place, std::move(next));
  }

  // What it ran starts again, on any replica; it comes back at once, without its cache.
  void Die(Replica* replica) {
    dead_ = true;
    for (auto active = replica->active.rbegin(); active != replica->active.rend(); ++active)
      waiting_.push_front(std::move(active->job));
    replica->active.clear();
    replica->cache = NewCache();
    router_.Forget(replica->node.id);
  }

  RoutingResult Finish() {
    double sequences = 0, rows = 0;
    for (const Replica& replica : replicas_) {
      sequences += static_cast<double>(replica.sequences);
      rows += static_cast<double>(replica.rows);
      result_.most_sequences =
          std::max(result_.most_sequences, static_cast<double>(replica.sequences));
      result_.most_rows = std::max(result_.most_rows, static_cast<double>(replica.rows));
    }
    result_.most_sequences *= load_.replicas / sequences;
    result_.most_rows *= load_.replicas / rows;
    result_.mean_gap = gap_ / result_.makespan_s;
    std::sort(first_tokens_.begin(), first_tokens_.end());
    for (const double seconds : first_tokens_) result_.mean_first_token_s += seconds;
    result_.mean_first_token_s /= result_.finished;
    result_.p99_first_token_s = first_tokens_[first_tokens_.size() * 99 / 100];
    result_.mean_latency_s = latency_ / result_.finished;
    return result_;
  }

  const RoutingLoad load_;
  const RoutingRule& rule_;
  std::deque<Job> jobs_, waiting_;
  Draw draw_;
  Router router_;
  std::vector<Replica> replicas_;
  double now_s_ = 0, gap_ = 0, latency_ = 0;
  bool dead_ = false;
  std::vector<double> first_tokens_;
  RoutingResult result_;
};

}  // namespace

RoutingResult Simulate(const RoutingLoad& load, const RoutingRule& rule) {
  return Simulation(load, rule).Run();
}

}  // namespace coppice::lab
