// Levels of draft forests: nodes by score and by the draws of one slot against double precision, their
// rows against a walk up the tree. The whole rule is compared with the host's in device_forests_test.
#include "kernels/cuda/ops/draft_levels.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "kernels/cuda/ops/gumbel_noise.h"
#include "sampling/rng.h"
#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

TEST(DraftLevelNoise, IsThatOfTheHost) {
  double worst = 0;
  for (uint32_t i = 0; i < 1 << 14; ++i) {
    const uint64_t seed = 77 * i, hash = 0x9E3779B97F4A7C15ull * (i + 1);
    const double want = sampling::Gumbel(seed, sampling::Domain::kParent, hash, i % 32, 0);
    worst = std::max(worst, std::abs(PickNoise(seed, hash, i % 32) - want) / (std::abs(want) + 2));
    ASSERT_EQ(PathHash(hash, static_cast<int32_t>(i * 31)), sampling::ExtendHash(hash, i * 31));
  }
  EXPECT_LT(worst, 0x1p-23);
}

struct Token {
  int32_t token;
  double log_prob;
};

// One level of some forests, all by one rule: lists of random logits, the kernel's choice.
class LevelsFixture {
 public:
  // Coarse: logits are multiples of 1/4, so many are equal.
  LevelsFixture(int forests, int nodes, bool picks, uint64_t seed, int listed = 30,
                int support = 20, bool coarse = false)
      : nodes_(nodes), tasks_(forests), starts_(forests), states_(forests), scratch_(forests) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, 2);
    const std::vector<TokenBias> bias = {{5, 0, 3.0}, {900, 0, -1e30}, {5, 0, 0.5}, {3, 0, 1.0}};
    for (int f = 0; f < forests; ++f) {
      LevelTask& task = tasks_[f];
      task.forest = f;
      task.first_list = static_cast<int32_t>(lists_.size());
      task.width = 5;
      task.support = support;
      task.picks = picks ? 1 : 0;
      task.beam_width = 1;
      task.refill = 1;
      task.stop_begin = 0;
      task.stop_end = 2;
      task.inverse_temperature = 1 / 0.8f;
      task.seed = seed * 1000 + f;
      LevelStart& start = starts_[f];
      start = LevelStart();
      start.roots = nodes;
      start.slots = picks ? 1 : 0;
      start.slot_token[0] = -1;
      start.slot_root[0] = f % nodes;
      for (int n = 0; n < nodes; ++n) {
        start.hash[n] = random();
        start.score[n] = -std::abs(normal(random));
        const bool biased = (f + n) % 2 == 0;
        ListTask list;
        list.record = static_cast<int32_t>(records_.size());
        list.bias_end = biased ? static_cast<int32_t>(bias.size()) : 0;
        lists_.push_back(list);
        std::map<int32_t, double> x;
        const auto put = [&](int32_t word) { records_.push_back(static_cast<uint32_t>(word)); };
        const auto put_float = [&](float value) { records_.push_back(__float_as_uint(value)); };
        put(-1);
        put_float(0);
        put(listed);
        put_float(-100);
        for (int i = 0; i < list.bias_end; ++i) {
          const float logit = bias[i].token == 5 ? 1.25f : bias[i].token == 900 ? 9.0f : -0.5f;
          put_float(logit);
          double sum = logit;
          for (const TokenBias& entry : bias) sum += entry.token == bias[i].token ? entry.bias : 0;
          if (sum > -1e20) x[bias[i].token] = sum / 0.8;
        }
        for (int i = 0; i < listed; ++i) {
          const int32_t token = 10 + 7 * i + static_cast<int32_t>(random() % 7);
          const float drawn = normal(random);
          const float logit = coarse ? std::round(4 * drawn) / 4 : drawn;
          put(token);
          put_float(logit);
          x[token] = logit / 0.8;
        }
        rows_.push_back(Row(x, support));
      }
    }
    bias_ = bias;
  }

  void Run() {
    DeviceArray<LevelTask> tasks(tasks_);
    DeviceArray<LevelStart> starts(starts_);
    DeviceArray<int32_t> stops(stops_);
    DeviceArray<ListTask> lists(lists_);
    DeviceArray<TokenBias> bias(bias_);
    DeviceArray<uint32_t> records(records_);
    DeviceArray<DeviceLists> of_lists(1);
    of_lists[0] = DeviceLists();
    of_lists[0].lists = lists.data();
    of_lists[0].bias = bias.data();
    of_lists[0].records = records.data();
    DeviceArray<DeviceLevels> levels(1);
    levels[0] = DeviceLevels();
    levels[0].tasks = tasks.data();
    levels[0].starts = starts.data();
    levels[0].stops = stops.data();
    levels[0].states = states_.data();
    levels[0].scratch = scratch_.data();
    levels[0].count = static_cast<int32_t>(tasks_.size());
    ChooseLevels({levels.data(), levels[0].count + 3}, {of_lists.data(), 1, 0}, nullptr);
    WaitForDevice();
  }

  // The largest, renormalised.
  static std::vector<Token> Row(const std::map<int32_t, double>& x, int support) {
    std::vector<Token> row;
    for (const auto& [token, value] : x) row.push_back({token, value});
    // Ascending in their tokens, so that of equal ones the lower comes first.
    std::stable_sort(row.begin(), row.end(),
                     [](const Token& a, const Token& b) { return a.log_prob > b.log_prob; });
    row.resize(std::min<size_t>(row.size(), support));
    double sum = 0;
    for (const Token& token : row) sum += std::exp(token.log_prob);
    for (Token& token : row) token.log_prob -= std::log(sum);
    return row;
  }
  const std::vector<Token>& RowOf(int forest, int node) const {
    return rows_[forest * nodes_ + node];
  }
  bool Stops(int32_t token) const {
    return std::find(stops_.begin(), stops_.end(), token) != stops_.end();
  }
  // The chosen (node, token), in the order of the level.
  std::vector<std::pair<int32_t, int32_t>> Chosen(int forest) const {
    const ForestState& state = states_.data()[forest];
    std::vector<std::pair<int32_t, int32_t>> chosen;
    for (int i = 0; i < state.layer_count[0]; ++i)
      chosen.emplace_back(state.parent[0][i], state.token[0][i]);
    return chosen;
  }

  const int nodes_;
  std::vector<LevelTask> tasks_;
  std::vector<LevelStart> starts_;
  std::vector<int32_t> stops_ = {5, 40};
  std::vector<ListTask> lists_;
  std::vector<TokenBias> bias_;
  std::vector<uint32_t> records_;
  std::vector<std::vector<Token>> rows_;
  DeviceArray<ForestState> states_;
  DeviceArray<LevelScratch> scratch_;
};

TEST(CudaDraftLevels, ByScore) {
  LevelsFixture levels(3, 4, /*picks=*/false, 1);
  levels.Run();
  for (int f = 0; f < 3; ++f) {
    std::vector<std::pair<double, std::pair<int32_t, int32_t>>> want;
    for (int n = 0; n < 4; ++n) {
      for (const Token& token : levels.RowOf(f, n)) {
        if (levels.Stops(token.token)) continue;
        want.push_back({-(levels.starts_[f].score[n] + token.log_prob), {n, token.token}});
      }
    }
    std::sort(want.begin(), want.end());
    const auto got = levels.Chosen(f);
    ASSERT_EQ(got.size(), 5u);
    const ForestState& state = levels.states_.data()[f];
    EXPECT_EQ(state.count, 5);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(got[i], want[i].second) << f << " " << i;
      EXPECT_NEAR(state.score[i], -want[i].first, 1e-5);
      EXPECT_EQ(state.hash[i],
                sampling::ExtendHash(levels.starts_[f].hash[got[i].first], got[i].second));
      EXPECT_EQ(state.cost[i], 0);
    }
  }
}

// The rows as the kernel keeps them, of lists that one sort of 64 entries or of 128 takes: sorted,
// of equal values the lower token first.
TEST(CudaDraftLevels, RowsAreSorted) {
  for (const auto& [listed, support] :
       {std::pair(1, 1), {20, 20}, {60, 60}, {61, 17}, {64, 64}, {81, 64}, {92, 1}}) {
    for (const bool coarse : {false, true}) {
      LevelsFixture levels(1, 6, /*picks=*/false, listed, listed, support, coarse);
      levels.Run();
      const LevelScratch& rows = levels.scratch_.data()[0];
      for (int n = 0; n < 6; ++n) {
        const std::vector<Token>& want = levels.RowOf(0, n);
        ASSERT_EQ(rows.entries[n], static_cast<int>(want.size())) << listed << " " << support;
        for (size_t e = 0; e < want.size(); ++e) {
          const size_t at = n * kMostLevelSupport + e;
          ASSERT_EQ(rows.token[at], want[e].token) << listed << " node " << n << " entry " << e;
          ASSERT_NEAR(rows.log_prob[at], want[e].log_prob, 2e-5);
        }
      }
    }
  }
}

// With one slot there is no rival for a hedge: the rule is that of docs/algorithms.md 5.7.
TEST(CudaDraftLevels, ByTheDrawsOfASlot) {
  LevelsFixture levels(4, 2, /*picks=*/true, 2);
  levels.Run();
  for (int f = 0; f < 4; ++f) {
    const int root = f % 2;
    std::vector<std::pair<double, int32_t>> keys;
    for (const Token& token : levels.RowOf(f, root)) {
      keys.push_back(
          {-(token.log_prob + sampling::Gumbel(levels.tasks_[f].seed, sampling::Domain::kToken,
                                               levels.starts_[f].hash[root], 0, token.token)),
           token.token});
    }
    std::sort(keys.begin(), keys.end());
    const bool ends = levels.Stops(keys[0].second);
    const ForestState& state = levels.states_.data()[f];
    const auto got = levels.Chosen(f);
    ASSERT_EQ(got.size(), 5u);
    size_t i = 0;
    for (const auto& [key, token] : keys) {
      if (levels.Stops(token) || i == 5) continue;
      EXPECT_EQ(got[i], std::pair(root, token));
      EXPECT_NEAR(state.cost[i++], key - keys[0].first, 1e-5);
    }
    ASSERT_EQ(state.slots, 1);
    EXPECT_EQ(state.predicted[0], ends ? -1 : 0);
  }
}

// A known output comes first, though the row does not list it, and leads to the slot's next node.
TEST(CudaDraftLevels, KnownOutputs) {
  LevelsFixture levels(2, 2, /*picks=*/true, 3);
  for (LevelStart& start : levels.starts_) start.slot_token[0] = 777;
  levels.starts_[1].slot_token[0] = 40;  // it ends, and nothing else is known
  levels.Run();
  EXPECT_THAT(levels.Chosen(0), testing::ElementsAre(std::pair(0, 777)));
  EXPECT_EQ(levels.states_.data()[0].predicted[0], 0);
  EXPECT_TRUE(levels.Chosen(1).empty());
  EXPECT_EQ(levels.states_.data()[1].count, 0);
}

TEST(CudaDraftLevels, ABadRowEndsItsForest) {
  LevelsFixture levels(2, 3, /*picks=*/false, 4);
  for (const int node : {1, 2}) {
    uint32_t* const record = levels.records_.data() + levels.lists_[3 + node].record;
    record[0] = 100 + node;
    record[1] = __float_as_uint(std::numeric_limits<float>::infinity());
  }
  levels.Run();
  EXPECT_EQ(levels.states_.data()[0].bad_level, -1);
  const ForestState& bad = levels.states_.data()[1];
  EXPECT_EQ(bad.bad_level, 0);
  EXPECT_EQ(bad.bad_node, 1);
  EXPECT_EQ(bad.bad_token, 101);
  EXPECT_EQ(bad.count, 0);
  EXPECT_TRUE(levels.Chosen(1).empty());
}

// Two levels below 2 roots: 4 rows, of which 3 have a node. Two groups of layers have slots of their
// own.
TEST(CudaDraftLevels, RowsSeeTheirLine) {
  constexpr int kRows = 4, kChain = 70, kWords = 2, kLevel = 2, kLength = kChain + kLevel;
  DeviceArray<ForestState> states(2);
  ForestState& state = states[1];
  state.count = 3;
  state.roots = 2;
  const int32_t parents[2][4] = {{0, 0, 1, 0}, {2, 0, 2, 0}},
                tokens[2][4] = {{1, 2, 3, 4}, {11, 12, 13, 14}};
  std::memcpy(state.parent[0], parents[0], sizeof parents[0]);
  std::memcpy(state.parent[1], parents[1], sizeof parents[1]);
  std::memcpy(state.token[1], tokens[1], sizeof tokens[1]);
  std::vector<int32_t> chains(3, -7), slots;  // of another forest
  LevelTask task;
  task.forest = 1;
  task.level = kLevel;
  task.first_row = 2;
  task.rows = kRows;
  task.root_chain = kChain;
  task.chains = 3;
  for (int root = 0; root < 2; ++root) {
    for (int i = 0; i < kChain; ++i) chains.push_back(1000 * (root + 1) + i);
  }
  for (int layer = 0; layer < kLevel; ++layer) {
    for (int row = 0; row < kRows; ++row) chains.push_back(100 * (layer + 1) + row);
  }
  constexpr int kGroups = 2, kOther = 10000;
  const auto chain_slots = static_cast<int32_t>(chains.size());
  for (int i = 0; i < chain_slots; ++i) chains.push_back(chains[i] + kOther);
  task.mask_words = kWords;
  task.bits = static_cast<int32_t>(slots.size());
  for (int i = 0; i < kLevel * kRows; ++i) slots.push_back(60 + i);  // of both words
  task.row_masks = static_cast<int32_t>(slots.size());
  for (const int at : {6, 1, 9, 4}) slots.push_back(at);
  task.root_masks = 1;
  const std::vector<uint64_t> root_masks = {99, 0x5, 0x0, 0x3, uint64_t{1} << 63};
  DeviceArray<LevelTask> tasks(std::vector<LevelTask>{task});
  DeviceArray<int32_t> of_chains(chains);
  DeviceArray<int32_t> of_slots(slots);
  DeviceArray<uint64_t> of_masks(root_masks);
  DeviceArray<DeviceLevels> levels(1);
  levels[0] = DeviceLevels();
  levels[0].tasks = tasks.data();
  levels[0].chains = of_chains.data();
  levels[0].groups = kGroups;
  levels[0].chain_slots = chain_slots;
  levels[0].slots = of_slots.data();
  levels[0].masks = of_masks.data();
  levels[0].states = states.data();
  levels[0].count = 1;
  DeviceArray<int32_t> token(std::vector<int32_t>(7, 0));
  DeviceArray<int32_t> chain(std::vector<int32_t>(7 * kLength, -5));
  DeviceArray<int32_t> other_chain(std::vector<int32_t>(7 * kLength, -5));
  std::vector<int32_t> begins;
  for (int row = 0; row <= 7; ++row) begins.push_back(row * kLength);
  DeviceArray<int32_t> chain_begin(begins);
  DeviceArray<uint64_t> masks(std::vector<uint64_t>(12, 0xabc));
  DeviceArray<DeviceStep> step(kGroups);
  for (int group = 0; group < kGroups; ++group) {
    step[group] = DeviceStep();
    step[group].token = token.data();
    step[group].chain = group == 0 ? chain.data() : other_chain.data();
    step[group].chain_begin = chain_begin.data();
  }
  DeviceArray<DeviceWork> work(1);
  work[0] = DeviceWork();
  work[0].masks = masks.data();
  PlaceLevels({levels.data(), 2}, {step.data(), 8, 8}, {work.data(), {}}, nullptr);
  WaitForDevice();
  EXPECT_THAT(token.Copy(), testing::ElementsAre(0, 0, 11, 12, 13, 0, 0));
  const int32_t root[3] = {1, 0, 1};  // of layer 0's nodes 2, 0, 2
  const int32_t node[3] = {2, 0, 2};
  std::vector<uint64_t> want(12, 0xabc);
  for (int row = 0; row < 3; ++row) {
    const int32_t* const got = chain.data() + (2 + row) * kLength;
    for (int i = 0; i < kChain; ++i) ASSERT_EQ(got[i], 1000 * (root[row] + 1) + i) << row;
    EXPECT_EQ(got[kChain], 100 + node[row]);
    EXPECT_EQ(got[kChain + 1], 200 + row);
    const int32_t* const other = other_chain.data() + (2 + row) * kLength;
    for (int i = 0; i < kLength; ++i) ASSERT_EQ(other[i], got[i] + kOther) << row;
    const int at[3] = {6, 1, 9};
    want[at[row]] = root_masks[1 + 2 * root[row]];
    want[at[row] + 1] = root_masks[2 + 2 * root[row]];
    for (const int bit : {60 + node[row], 60 + kRows + row})
      want[at[row] + bit / 64] |= uint64_t{1} << bit % 64;
  }
  EXPECT_THAT(masks.Copy(), testing::ElementsAreArray(want));
  EXPECT_EQ(chain.data()[5 * kLength], -5);  // a row without a node
  EXPECT_EQ(other_chain.data()[5 * kLength], -5);
}

}  // namespace
}  // namespace coppice::kernels::cuda
