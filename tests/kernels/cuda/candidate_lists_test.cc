// Lists of the largest logits against sorted rows, exactly; lists with noise against keys in double
// precision.
#include <algorithm>
#include <functional>
#include <set>

#include "kernels/cuda/ops/gumbel_noise.h"
#include "sampling/rng.h"
#include "tests/kernels/cuda/lists_fixture.h"

namespace coppice::kernels::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ListTask TopTask(int row, int want) {
  ListTask task;
  task.row = row;
  task.want = want;
  task.first_of_row = 1;
  return task;
}

ListTask NoisyTask(int row, int want, uint32_t slot, float temperature = 1) {
  ListTask task = TopTask(row, want);
  task.noisy = 1;
  task.inverse_temperature = 1 / temperature;
  task.seed = 0x9876543210abcdefull + row;
  task.path_hash = 0x1122334455667788ull * (row + 3);
  task.slot = slot;
  return task;
}

// How a row is made: value of token v.
using Maker = std::function<float(int64_t v, std::mt19937_64& random)>;

std::vector<float> MakeRow(const TestShard& shard, const Maker& maker, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> row;
  for (int64_t v = shard.begin; v < shard.end; ++v) row.push_back(maker(v, random));
  return row;
}

float Normal(int64_t, std::mt19937_64& random) {
  return std::normal_distribution<float>(0, 3)(random);
}
float Coarse(int64_t v, std::mt19937_64& random) { return std::round(Normal(v, random)); }

bool IsBiased(const TestLists& lists, const ListTask& task, TokenId token) {
  for (int i = task.bias_begin; i < task.bias_end; ++i) {
    if (lists.bias[i].token == token) return true;
  }
  return false;
}

void ExpectRowFacts(const TestLists& lists, const ListTask& task, const TestShard& shard,
                    const TestRecord& record) {
  TokenId bad = -1;
  for (int64_t v = shard.end - 1; v >= shard.begin; --v) {
    const float logit = lists.Logit(task.row, static_cast<TokenId>(v));
    if (!(logit < kInf)) bad = static_cast<TokenId>(v);
  }
  EXPECT_EQ(record.header.bad_token, bad);
  if (bad >= 0) {
    EXPECT_EQ(__float_as_uint(record.header.bad_logit),
              __float_as_uint(lists.Logit(task.row, bad)));
  }
  ASSERT_EQ(record.biased.size(), static_cast<size_t>(task.bias_end - task.bias_begin));
  for (int i = task.bias_begin; i < task.bias_end; ++i) {
    const TokenId token = lists.bias[i].token;
    const bool held = token >= shard.begin && token < shard.end;
    EXPECT_EQ(record.biased[i - task.bias_begin], held ? lists.Logit(task.row, token) : 0.0f);
  }
}

void ExpectTop(const TestLists& lists, int list, const TestShard& shard) {
  const ListTask& task = lists.lists[list];
  const TestRecord record = lists.Record(list);
  ExpectRowFacts(lists, task, shard, record);
  std::vector<TokenId> order;
  for (int64_t v = shard.begin; v < shard.end; ++v) {
    const auto token = static_cast<TokenId>(v);
    if (lists.Logit(task.row, token) > -kInf && !IsBiased(lists, task, token))
      order.push_back(token);
  }
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    const float x = lists.Logit(task.row, a), y = lists.Logit(task.row, b);
    return x > y || (x == y && a < b);
  });
  if (order.size() > static_cast<size_t>(task.want)) order.resize(task.want);
  if (!order.empty()) {
    EXPECT_EQ(record.header.least_key, lists.Logit(task.row, order.back()));
  }
  std::sort(order.begin(), order.end());
  std::vector<TokenId> got = record.tokens;
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, order);
  for (size_t i = 0; i < record.tokens.size(); ++i) {
    EXPECT_EQ(__float_as_uint(record.logits[i]),
              __float_as_uint(lists.Logit(task.row, record.tokens[i])));
  }
}

void TestTop(const TestShard& shard, const Maker& maker, const std::vector<int>& wants) {
  std::vector<float> logits;
  for (size_t row = 0; row < wants.size(); ++row) {
    const std::vector<float> values = MakeRow(shard, maker, row + shard.vocab);
    logits.insert(logits.end(), values.begin(), values.end());
  }
  TestLists lists(shard, logits);
  for (size_t row = 0; row < wants.size(); ++row)
    lists.lists.push_back(TopTask(static_cast<int>(row), wants[row]));
  lists.Run();
  for (size_t row = 0; row < wants.size(); ++row) {
    SCOPED_TRACE(testing::Message()
                 << wants[row] << " of " << shard.vocab << " tokens from " << shard.begin << " on");
    ExpectTop(lists, static_cast<int>(row), shard);
  }
}

TEST(CudaCandidateLists, LargestLogits) {
  for (const int64_t vocab : {33, 1000, 32000}) {
    TestTop(TestShard::Of(vocab), Normal, {1, 2, 64, 1024, 2048});
    TestTop(TestShard::Of(vocab), Coarse, {1, 2, 64, 1024, 2048});
  }
}

TEST(CudaCandidateLists, LargestLogitsOfABigVocabulary) {
  TestTop(TestShard::Of(128256), Normal, {1, 81, 1041});
  TestTop(TestShard::Of(128256), Coarse, {81});
}

TEST(CudaCandidateLists, ShardsOfOddSizes) {
  for (const auto& [rank, ranks] : {std::pair(0, 2), {1, 2}, {2, 3}, {5, 7}, {15, 16}}) {
    TestTop(TestShard::Of(50257, rank, ranks), Coarse, {1, 20, 700});
    TestTop(TestShard::Of(101, rank, ranks), Normal, {3});
  }
}

// The threads' maxima say least when the largest logits are those of few threads.
TEST(CudaCandidateLists, HardRows) {
  const TestShard shard = TestShard::Of(20001);
  const std::vector<std::pair<const char*, Maker>> makers = {
      {"all equal", [](int64_t, auto&) { return -2.5f; }},
      {"rising", [](int64_t v, auto&) { return static_cast<float>(v); }},
      {"falling", [](int64_t v, auto&) { return static_cast<float>(-v); }},
      {"few threads", [](int64_t v, auto&) { return v % 1024 < 6 ? 5.0f + (v % 7) : -1.0f; }},
      {"one thread", [](int64_t v, auto&) { return v % 1024 < 2 ? static_cast<float>(v) : 0.0f; }},
      {"ties at the border", [](int64_t v, auto&) { return v % 500 == 3 ? 2.0f : v % 3 - 2.0f; }},
      {"zeros of both signs", [](int64_t v, auto&) { return v % 2 == 0 ? -0.0f : 0.0f; }},
      {"denormals", [](int64_t v, auto&) { return 1e-45f * static_cast<float>(v % 4001 - 2000); }},
      {"few finite", [](int64_t v, auto&) { return v % 5000 == 4999 ? 1.0f : -kInf; }},
      {"none finite", [](int64_t, auto&) { return -kInf; }},
  };
  for (const auto& [name, maker] : makers) {
    SCOPED_TRACE(name);
    TestTop(shard, maker, {1, 2, 64, 513, 1024});
  }
}

TEST(CudaCandidateLists, BadLogits) {
  const TestShard shard = TestShard::Of(20001);
  TestTop(shard, [](int64_t v, auto& random) { return v == 9000 ? kNan : Normal(v, random); }, {5});
  TestTop(shard, [](int64_t v, auto& random) { return v == 20000 ? -kNan : Normal(v, random); },
          {5});
  TestTop(shard,
          [](int64_t v, auto& random) { return v == 8191 || v == 3 ? kInf : Normal(v, random); },
          {5});
  TestTop(shard, [](int64_t, auto&) { return kNan; }, {5});
}

TEST(CudaCandidateLists, TokensWithABiasStayOut) {
  const TestShard shard = TestShard::Of(40000, 1, 2);  // tokens 20000 to 39999
  TestLists lists(shard, MakeRow(shard, Coarse, 1));
  lists.spare_room = 3;
  lists.bias = {{20000, 0, 1.0}, {39999, 0, 1.0}, {5, 0, 1.0}};
  for (int v = 0; v < 2000; ++v) lists.bias.push_back({20000 + 9 * v, 0, 0.5});
  for (const int begin : {0, 1, 2003}) {
    ListTask task = TopTask(0, 20);
    task.bias_begin = begin;
    task.bias_end = 2003;
    lists.lists.push_back(task);
  }
  lists.Run();
  for (int list = 0; list < 3; ++list) ExpectTop(lists, list, shard);
}

// ---- With noise

// More than f32 keys are from those in f64: kernels/cuda/runtime/list_plan.cc has a bound of 2^-21.
double KeyError(double key) { return (std::abs(key) + 64) * 0x1p-21; }

void ExpectNoisy(const TestLists& lists, int list, const TestShard& shard) {
  const ListTask& task = lists.lists[list];
  const TestRecord record = lists.Record(list);
  const std::set<TokenId> listed(record.tokens.begin(), record.tokens.end());
  EXPECT_EQ(listed.size(), record.tokens.size());
  const double least = record.header.least_key, error = KeyError(least);
  double least_listed = std::numeric_limits<double>::infinity();
  int64_t finite = 0;
  for (int64_t v = shard.begin; v < shard.end; ++v) {
    const auto token = static_cast<TokenId>(v);
    const float logit = lists.Logit(task.row, token);
    if (!(logit > -kInf) || IsBiased(lists, task, token)) {
      EXPECT_EQ(listed.count(token), 0u);
      continue;
    }
    ++finite;
    const double key =
        double{logit} * task.inverse_temperature +
        sampling::Gumbel(task.seed, sampling::Domain::kToken, task.path_hash, task.slot, v);
    if (listed.count(token) > 0) {
      least_listed = std::min(least_listed, key);
    } else {
      ASSERT_LE(key, least + error) << "token " << token << " is not in the list";
    }
  }
  EXPECT_EQ(record.header.count, std::min<int64_t>(finite, task.want));
  if (finite > 0) {
    EXPECT_NEAR(least, least_listed, error);
  }
  for (size_t i = 0; i < record.tokens.size(); ++i)
    EXPECT_EQ(record.logits[i], lists.Logit(task.row, record.tokens[i]));
}

void TestNoisy(const TestShard& shard, const Maker& maker, const std::vector<ListTask>& tasks) {
  TestLists lists(shard, MakeRow(shard, maker, shard.vocab));
  lists.lists = tasks;
  lists.Run();
  for (size_t list = 0; list < tasks.size(); ++list) {
    SCOPED_TRACE(testing::Message() << "list " << list << " of " << shard.vocab << " tokens from "
                                    << shard.begin << " on");
    ExpectNoisy(lists, static_cast<int>(list), shard);
  }
}

TEST(CudaCandidateLists, LargestNoisyKeys) {
  for (const int64_t vocab : {33, 1000, 32000}) {
    TestNoisy(TestShard::Of(vocab), Normal,
              {NoisyTask(0, 5, 0), NoisyTask(0, 5, 3), NoisyTask(0, 12, 31, 0.5f),
               NoisyTask(0, 5, 7, 3.0f), NoisyTask(0, 600, 1)});
  }
  TestNoisy(TestShard::Of(1000), [](int64_t, auto&) { return 0.0f; }, {NoisyTask(0, 5, 0)});
}

TEST(CudaCandidateLists, NoisyShardsOfOddSizes) {
  for (const auto& [rank, ranks] : {std::pair(1, 2), {2, 3}, {5, 7}})
    TestNoisy(TestShard::Of(50257, rank, ranks), Normal, {NoisyTask(0, 5, 2)});
}

// The list is that of the f32 keys of all tokens, bit for bit, whatever the kernel leaves out.
void ExpectKeys(const TestLists& lists, int list, const TestShard& shard) {
  const ListTask& task = lists.lists[list];
  std::vector<std::pair<float, TokenId>> keys;
  for (int64_t v = shard.begin; v < shard.end; ++v) {
    const auto token = static_cast<TokenId>(v);
    const float logit = lists.Logit(task.row, token);
    if (!(logit > -kInf) || IsBiased(lists, task, token)) continue;
    const NoisePair noise =
        TokenNoise(task.seed, task.path_hash, task.slot, static_cast<uint32_t>(v));
    keys.emplace_back(logit * task.inverse_temperature + (v % 2 == 0 ? noise.even : noise.odd), v);
  }
  std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  });
  keys.resize(std::min<size_t>(keys.size(), task.want));
  const TestRecord record = lists.Record(list);
  std::set<TokenId> want;
  for (const auto& [key, token] : keys) want.insert(token);
  EXPECT_EQ(std::set<TokenId>(record.tokens.begin(), record.tokens.end()), want);
  ASSERT_EQ(record.tokens.size(), keys.size());
  if (!keys.empty()) {
    EXPECT_EQ(record.header.least_key, keys.back().first);
  }
  ExpectRowFacts(lists, task, shard, record);
}

void TestKeys(const TestShard& shard, const Maker& maker, const std::vector<ListTask>& tasks) {
  TestLists lists(shard, MakeRow(shard, maker, shard.vocab));
  lists.lists = tasks;
  lists.Run();
  for (size_t list = 0; list < tasks.size(); ++list) {
    SCOPED_TRACE(testing::Message() << "list " << list << " of " << shard.vocab << " tokens from "
                                    << shard.begin << " on");
    ExpectKeys(lists, static_cast<int>(list), shard);
  }
}

// Temperatures from one where the logits decide to one where the noise does; lists of all ways to
// find a threshold.
TEST(CudaCandidateLists, NoisyListsAreThoseOfAllKeys) {
  const std::vector<ListTask> tasks = {NoisyTask(0, 5, 0),      NoisyTask(0, 16, 1, 0.05f),
                                       NoisyTask(0, 1, 2, 30),  NoisyTask(0, 17, 3),
                                       NoisyTask(0, 300, 4, 2), NoisyTask(0, 700, 5, 0.3f)};
  TestKeys(TestShard::Of(15), Normal, tasks);
  TestKeys(TestShard::Of(1000), Coarse, tasks);
  TestKeys(TestShard::Of(9001), Normal, tasks);
  for (const auto& [rank, ranks] : {std::pair(1, 2), {2, 3}, {15, 16}})
    TestKeys(TestShard::Of(50257, rank, ranks), Normal, {tasks[0], tasks[3]});
}

// The token with the largest bound of its key often has not the largest key.
TEST(CudaCandidateLists, NoisyListsOfOneToken) {
  std::vector<ListTask> tasks;
  for (int i = 0; i < 64; ++i) {
    tasks.push_back(NoisyTask(0, 1, i % 32, 30));
    tasks.back().seed += i;
  }
  TestKeys(TestShard::Of(1000), Normal, tasks);
}

TEST(CudaCandidateLists, NoisyListsOfHardRows) {
  const TestShard shard = TestShard::Of(9000);
  const std::vector<std::pair<const char*, Maker>> makers = {
      {"all equal", [](int64_t, auto&) { return -2.5f; }},
      {"one token", [](int64_t v, auto& random) { return v == 8500 ? 40 : Normal(v, random); }},
      {"one thread", [](int64_t v, auto&) { return v % 1024 < 2 ? 60.0f : v % 7 - 3.0f; }},
      {"one warp", [](int64_t v, auto&) { return v % 1024 / 64 == 5 ? 90.0f : 0.0f; }},
      {"three warps", [](int64_t v, auto&) { return v % 1024 / 64 < 3 ? 90.0f : 0.0f; }},
      {"few finite", [](int64_t v, auto&) { return v % 5000 == 4999 ? 1.0f : -kInf; }},
      {"half a piece", [](int64_t v, auto&) { return v < 4000 ? v * 1e-3f : -kInf; }},
      {"none finite", [](int64_t, auto&) { return -kInf; }},
      {"huge", [](int64_t v, auto&) { return v % 3 == 0 ? 3e38f : -3e38f; }},
      {"bad", [](int64_t v, auto&) { return v == 8192      ? kNan
                                            : v % 97 == 96 ? kInf
                                                           : 0.5f; }},
  };
  for (const auto& [name, maker] : makers) {
    SCOPED_TRACE(name);
    TestKeys(shard, maker, {NoisyTask(0, 5, 0), NoisyTask(0, 40, 31, 9)});
  }
}

TEST(CudaCandidateLists, NoisyListsLeaveOutBiasedTokens) {
  const TestShard shard = TestShard::Of(30000, 1, 2);  // tokens 15000 to 29999
  TestLists lists(shard, MakeRow(shard, Normal, 8));
  for (int v = 0; v < 4000; ++v) lists.bias.push_back({15001 + 3 * v, 0, 0.5});
  lists.lists = {NoisyTask(0, 5, 0), NoisyTask(0, 30, 1)};
  for (ListTask& task : lists.lists) task.bias_end = 4000;
  lists.Run();
  for (int list = 0; list < 2; ++list) ExpectKeys(lists, list, shard);
}

// Small enough for every order of threads.
TEST(CudaCandidateLists, SmallMixedLists) {
  const TestShard shard = TestShard::Of(700);
  TestLists lists(shard, MakeRow(shard, Coarse, 5));
  lists.bias = {{3, 0, 1.0}, {699, 0, 1.0}};
  lists.lists = {TopTask(0, 3), TopTask(0, 513), NoisyTask(0, 5, 1)};
  lists.lists[1].bias_end = 2;
  lists.Run();
  ExpectTop(lists, 0, shard);
  ExpectTop(lists, 1, shard);
  ExpectNoisy(lists, 2, shard);
}

// ---- The noise alone

// The bounds of lab/measurements/2026-11-22-cuda-noise.md, which were measured on every argument;
// here on every 509th.
TEST(GumbelNoise, LogarithmsStayWithinTheirBounds) {
  double worst = 0, worst_near_one = 0;
  const uint32_t least = __float_as_uint(0x1p-53f);
  for (uint32_t bits = least; bits < __float_as_uint(37.0f); bits += 509) {
    const float x = __uint_as_float(bits);
    const double want = std::log(double{x});
    worst = std::max(worst, std::abs(LogOf(Split(x)) - want) / std::abs(want));
  }
  for (uint32_t bits = least; bits < __float_as_uint(0.29289322f); bits += 509) {
    const float t = __uint_as_float(bits);
    const double want = std::log1p(-double{t});
    worst_near_one = std::max(worst_near_one, std::abs(LogOf({-t, 0.0f}) - want) / -want);
  }
  EXPECT_LE(worst, 0x1.62p-24);  // 2^-23.53
  EXPECT_LE(worst_near_one, 0x1.62p-24);
}

TEST(GumbelNoise, IsThatOfTheHostInF32) {
  double worst = 0;
  for (uint32_t token = 0; token < 1u << 18; token += 2) {
    const uint64_t seed = 77 * token, hash = 0x9E3779B97F4A7C15ull * token;
    const NoisePair noise = TokenNoise(seed, hash, token % 32, token);
    const double even = sampling::Gumbel(seed, sampling::Domain::kToken, hash, token % 32, token);
    const double odd =
        sampling::Gumbel(seed, sampling::Domain::kToken, hash, token % 32, token + 1);
    worst = std::max({worst, std::abs(noise.even - even) / (std::abs(even) + 2),
                      std::abs(noise.odd - odd) / (std::abs(odd) + 2)});
  }
  EXPECT_LT(worst, 0x1p-23);
}

// Every first word near the powers of two, where the bounds are tightest, and others.
TEST(GumbelNoise, BoundsWithoutALogarithm) {
  float least = kInf, widest = 0;
  const auto check = [&](uint32_t rest) {
    for (const uint32_t second : {0u, 0x80000000u, 0xffffffffu}) {
      const float noise = GumbelOfWords(~rest, second), above = NoiseAbove(rest);
      least = std::min(least, above - noise);
      if (IsNoiseNear(rest)) widest = std::max(widest, above - noise);
    }
  };
  for (int bit = 0; bit < 32; ++bit) {
    for (uint32_t i = 0; i < 4096; ++i) {
      check((1u << bit) + i);
      check((1u << bit) - 1 - i);
    }
  }
  for (uint32_t rest = 0; rest < 0xfffff000u; rest += 4093) check(rest);
  EXPECT_GT(least, 0);
  EXPECT_LT(widest, kNoiseGap);
  EXPECT_TRUE(IsNoiseNear(0x3fffffff) && IsNoiseNear(0x1000));
  EXPECT_FALSE(IsNoiseNear(0x40000000) || IsNoiseNear(0xfff));
}

// Both ends of the 52 bits and both sides of 1/2, where the formula changes.
TEST(GumbelNoise, Tails) {
  const auto check = [](uint64_t n) {
    const auto first = static_cast<uint32_t>(n >> 20), second = static_cast<uint32_t>(n << 12);
    const long double u = (static_cast<long double>(n) + 0.5L) * 0x1p-52L;
    const long double want = -std::log(n < uint64_t{1} << 51 ? -std::log(u) : -std::log1p(u - 1));
    const float got = GumbelOfWords(first, second | 0xfff);
    ASSERT_TRUE(std::isfinite(got)) << n;
    ASSERT_LE(std::abs(got - want), 0x1p-23 * (std::abs(want) + 2)) << n;
  };
  constexpr uint64_t kEnd = uint64_t{1} << 52;
  for (uint64_t i = 0; i < 4096; ++i) {
    for (const uint64_t n : {i, kEnd - 1 - i, kEnd / 2 + i, kEnd / 2 - 1 - i}) check(n);
  }
  for (int bit = 0; bit < 51; ++bit) {
    for (uint64_t i = 0; i < 64; ++i) {
      const uint64_t n = (uint64_t{1} << bit) + i * ((uint64_t{1} << bit) / 64);
      check(n);
      check(kEnd - 1 - n);
    }
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
