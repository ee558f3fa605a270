// tests/decoding/README.md 2, batches: the rounds of requests are interleaved in any order. Every
// request gets the result that it gets alone, bit for bit, whatever their methods are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "tests/decoding/random_setting.h"

namespace coppice::decoding {
namespace {

// Every method with every kind that it serves.
struct Served {
  const MethodRow* row;
  sampling::DecodingKind kind;
};
std::vector<Served> EveryService() {
  std::vector<Served> all;
  for (const MethodRow& row : Methods()) {
    for (sampling::DecodingKind kind : row.serves) all.push_back({&row, kind});
  }
  return all;
}

DecodeSetting RandomRequest(uint64_t seed, const Served& served) {
  DecodeSetting s = RandomSetting(seed, served.kind);
  s.params.method = served.row;
  s.params.set_semantics = s.params.set_semantics && served.row->reads("beam_duplicates");
  // serves only greedy decoding
  if (!ResolveMethod(s.params).ok()) s.params.sampling.temperature = 0;
  if (served.row->joint_sampling && seed % 2 == 0)
    SetSamplingScope(sampling::SamplingScope::kJoint, &s.params);
  if (served.row->form == DraftForm::kNone) s.quality = test::DraftQuality::kNone;
  return s;
}

std::unique_ptr<test::DecodeLoop> Open(const DecodeSetting& s) {
  return std::make_unique<test::DecodeLoop>(MakeBeamDecoder(s.params).value(), s.params, s.lm,
                                            s.quality, s.draft_width, s.depth);
}

// The rounds of a batch in a random order.
std::vector<test::DecodeRun> RunInterleaved(const std::vector<DecodeSetting>& batch,
                                            uint64_t seed) {
  std::vector<std::unique_ptr<test::DecodeLoop>> loops;
  std::vector<int> open;
  for (const DecodeSetting& s : batch) {
    open.push_back(static_cast<int>(loops.size()));
    loops.push_back(Open(s));
  }
  Picker pick(seed);
  while (!open.empty()) {
    const int place = pick(static_cast<int>(open.size()));
    test::DecodeLoop& loop = *loops[open[place]];
    loop.Step();
    if (loop.finished()) open.erase(open.begin() + place);
  }
  std::vector<test::DecodeRun> runs;
  for (const auto& loop : loops) runs.push_back(loop->Finish());
  return runs;
}

TEST(InterleavingTest, EveryRequestOfABatchIsDecidedAsAlone) {
  const std::vector<Served> services = EveryService();
  uint64_t seed = 0;
  int more_than_one_round = 0;
  for (int size : {1, 3, 8}) {
    for (int batches = 0; batches < 60; ++batches) {
      std::vector<DecodeSetting> batch;
      std::vector<test::DecodeRun> alone;
      for (int i = 0; i < size; ++i, ++seed) {
        batch.push_back(RandomRequest(seed, services[seed % services.size()]));
        alone.push_back(RunDrafted(batch.back()));
        more_than_one_round += alone.back().layers_per_round.size() > 1 ? 1 : 0;
      }
      for (uint64_t order : {1, 2}) {
        const std::vector<test::DecodeRun> runs = RunInterleaved(batch, 1000 * seed + order);
        for (int i = 0; i < size; ++i) {
          SCOPED_TRACE(testing::Message()
                       << MethodName(batch[i].params) << " in a batch of " << size);
          EXPECT_TRUE(SameBits(runs[i], alone[i]));
          EXPECT_EQ(runs[i].layers_per_round, alone[i].layers_per_round);
        }
      }
    }
  }
  EXPECT_GT(more_than_one_round, 400);
}

// The same request twice in a batch: neither changes the draws of the other.
TEST(InterleavingTest, TwinsGetTheSame) {
  for (const Served& served : EveryService()) {
    SCOPED_TRACE(std::string(served.row->name));
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const DecodeSetting s = RandomRequest(seed, served);
      const std::vector<test::DecodeRun> runs = RunInterleaved({s, s, s}, seed);
      EXPECT_TRUE(SameBits(runs[0], runs[1]) && SameBits(runs[1], runs[2]));
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
