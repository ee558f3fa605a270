// Which rows and heads a thread computes together (kernels/cpu/attention_schedule.h).
#include "kernels/cpu/attention_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace coppice::kernels::cpu {
namespace {

// Requests of one row each, or of prefill rows. `own` blocks of a request follow the blocks that it
// has in common with the one before.
class Pass {
 public:
  Pass(int q_heads, int kv_heads, int window = 0) {
    pool_.shape.kv_heads = kv_heads;
    pool_.shape.head_dim = 64;
    args_ = {.q_heads = q_heads, .rule = {.scale = 1, .window = window}, .pool = &pool_};
  }
  void Add(int common, int own, int rows = 1) {
    const int blocks = common + own;
    for (int row = 0; row < rows; ++row) {
      order_.push_back(static_cast<int32_t>(order_.size()));
      common_.push_back(row == 0 ? common : blocks);
      row_table_.push_back(static_cast<int32_t>(table_begin_.size()) - 1);
      prefix_len_.push_back(blocks * kBlockSize - rows + 1 + row);
      chain_begin_.push_back(0);
    }
    const auto before = static_cast<int64_t>(table_.size()) - last_blocks_;
    for (int i = 0; i < common; ++i) table_.push_back(int32_t{table_[before + i]});
    for (int i = 0; i < own; ++i) table_.push_back(next_++);
    table_begin_.push_back(static_cast<int32_t>(table_.size()));
    last_blocks_ = blocks;
  }
  AttentionSchedule Schedule(int threads) {
    context_ = {row_table_, prefix_len_, chain_begin_, {}, table_begin_, table_, order_, common_};
    args_.context = &context_;
    return ScheduleAttention(args_, threads);
  }
  // Chunks of all queries, divided by those of the thread that has most, and by the threads.
  double Balance(const AttentionSchedule& schedule) const {
    double all = 0, most = 0;
    for (size_t thread = 0; thread + 1 < schedule.begin.size(); ++thread) {
      double chunks = 0;
      for (int64_t u = schedule.begin[thread]; u < schedule.begin[thread + 1]; ++u) {
        const AttentionUnit& unit = schedule.units[u];
        for (int64_t i = unit.begin; i < unit.end; ++i)
          chunks += unit.kv_heads * unit.heads * (prefix_len_[order_[i]] / kBlockSize);
      }
      all += chunks;
      most = std::max(most, chunks);
    }
    return all / most / static_cast<double>(schedule.begin.size() - 1);
  }
  // How often a block is read, at most, by units of one KV head.
  int MostReads(const AttentionSchedule& schedule) const {
    std::map<std::pair<int, int32_t>, int> reads;
    for (const AttentionUnit& unit : schedule.units) {
      std::set<int32_t> blocks;
      for (int64_t i = unit.begin; i < unit.end; ++i) {
        const int32_t row = order_[i], begin = table_begin_[row_table_[row]];
        blocks.insert(table_.begin() + begin,
                      table_.begin() + begin + prefix_len_[row] / kBlockSize);
      }
      for (int head = unit.kv_head; head < unit.kv_head + unit.kv_heads; ++head) {
        for (const int32_t block : blocks) ++reads[{head, block}];
      }
    }
    int most = 0;
    for (const auto& [block, times] : reads) most = std::max(most, times);
    return most;
  }
  void ExpectEachQueryOnce(const AttentionSchedule& schedule) const {
    const int group = args_.q_heads / pool_.shape.kv_heads;
    std::set<std::pair<int64_t, int>> seen;
    for (const AttentionUnit& unit : schedule.units) {
      EXPECT_LT(unit.begin, unit.end);
      EXPECT_GT(unit.heads, 0);
      EXPECT_GT(unit.kv_heads, 0);
      EXPECT_TRUE(unit.kv_heads == 1 || unit.heads == group);
      const int heads = unit.kv_heads * unit.heads;
      for (int64_t i = unit.begin; i < unit.end; ++i) {
        for (int head = unit.first_head; head < unit.first_head + heads; ++head) {
          EXPECT_EQ(head / group, unit.kv_head + (head - unit.first_head) / unit.heads);
          EXPECT_TRUE(seen.insert({i, head}).second) << "row " << i << ", head " << head;
        }
      }
    }
    EXPECT_EQ(seen.size(), order_.size() * args_.q_heads);
  }

 private:
  CpuKvPool pool_;
  AttentionArgs args_;
  AttentionContext context_;
  std::vector<int32_t> row_table_, prefix_len_, chain_begin_ = {0}, table_begin_ = {0}, table_,
                                                order_, common_;
  int32_t next_ = 1;
  int64_t last_blocks_ = 0;
};

TEST(AttentionSchedule, RequestsReadTheirPrefixOnce) {
  for (const int threads : {1, 2, 4}) {
    Pass pass(8, 4);
    for (int i = 0; i < 16; ++i) pass.Add(i == 0 ? 0 : 100, i == 0 ? 104 : 4);
    const AttentionSchedule schedule = pass.Schedule(threads);
    pass.ExpectEachQueryOnce(schedule);
    EXPECT_EQ(pass.MostReads(schedule), 1) << threads << " threads";
    EXPECT_GT(pass.Balance(schedule), 0.99) << threads << " threads";
  }
}

TEST(AttentionSchedule, OneHeadOfAPrefixKeepsAllThreadsBusy) {
  for (const int group : {1, 2, 8}) {
    for (const int threads : {2, 3, 4}) {
      Pass pass(group, 1);
      for (int i = 0; i < 16; ++i) pass.Add(i == 0 ? 0 : 100, i == 0 ? 104 : 4);
      const AttentionSchedule schedule = pass.Schedule(threads);
      pass.ExpectEachQueryOnce(schedule);
      EXPECT_GT(pass.Balance(schedule), 0.85) << group << " heads, " << threads << " threads";
    }
  }
}

TEST(AttentionSchedule, AGroupBesideShortContextsIsDivided) {
  Pass pass(1, 1);
  for (int i = 0; i < 12; ++i) pass.Add(i == 0 ? 0 : 100, i == 0 ? 104 : 4);
  for (int i = 0; i < 3; ++i) pass.Add(0, 2);
  const AttentionSchedule schedule = pass.Schedule(2);
  pass.ExpectEachQueryOnce(schedule);
  EXPECT_GT(pass.Balance(schedule), 0.9);
}

TEST(AttentionSchedule, HeadsOfOneRowAreDivided) {
  for (const int threads : {2, 3, 4, 8}) {
    Pass pass(8, 1);
    pass.Add(0, 100);
    const AttentionSchedule schedule = pass.Schedule(threads);
    pass.ExpectEachQueryOnce(schedule);
    EXPECT_GE(pass.Balance(schedule), threads == 3 ? 8.0 / 9 : 1.0) << threads << " threads";
  }
}

TEST(AttentionSchedule, UnitsOfSeveralThreadsAreNotCutWithoutNeed) {
  Pass pass(6, 2);
  for (int i = 0; i < 8; ++i) pass.Add(0, 50);
  const AttentionSchedule schedule = pass.Schedule(2);
  pass.ExpectEachQueryOnce(schedule);
  EXPECT_EQ(schedule.units.size(), 8u);
  EXPECT_EQ(pass.Balance(schedule), 1.0);
}

TEST(AttentionSchedule, RandomPassesHaveEachQueryOnce) {
  uint32_t random = 1;
  const auto below = [&](uint32_t n) {
    random = random * 1664525u + 1013904223u;
    return static_cast<int>((random >> 8) % n);
  };
  for (int step = 0; step < 300; ++step) {
    const int group = 1 + below(8), kv_heads = 1 + below(4);
    Pass pass(group * kv_heads, kv_heads, below(2) == 0 ? 0 : 1 + below(200));
    int blocks = 0;
    for (int requests = 1 + below(12); requests > 0; --requests) {
      const int common = blocks == 0 || below(2) == 0 ? 0 : below(blocks + 1);
      const int own = 1 + below(30);
      pass.Add(common, own,
               1 + (below(3) == 0 ? below(std::min(40, (common + own) * kBlockSize)) : 0));
      blocks = common + own;
    }
    pass.ExpectEachQueryOnce(pass.Schedule(1 + below(9)));
  }
}

}  // namespace
}  // namespace coppice::kernels::cpu
