// Models with windows give back the KV that no row will see. Whole rounds have the same bits as
// without that, in every method, with drafts and without, in a pool that has just as many pages as
// the bound says, and while every free page holds NaN.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "kernels/cpu/kv_pool.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/method_case.h"
#include "tests/testing/poison.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"

namespace coppice::worker {
namespace {

constexpr int kVocab = 96;
constexpr TokenId kEos = 2;
constexpr int kTokens = 40;
constexpr int kDepth = 3;
const char* const kFamilies[] = {"mistral", "qwen2_window", "gemma2", "gemma3", "phi3"};

std::vector<TokenId> Prompt(int first, int length) {
  std::vector<TokenId> prompt = {static_cast<TokenId>(first)};
  while (static_cast<int>(prompt.size()) < length)
    prompt.push_back((prompt.back() * 37 + 11) % kVocab);
  return prompt;
}

class WindowDecodeTest : public testing::TestWithParam<const char*> {
 protected:
  WindowDecodeTest() {
    test::WriteTinyLlama(test::MakeTinyFamily(GetParam(), {.layers = 4, .vocab = kVocab}),
                         target_.path());
    test::WriteTinyLlama(test::MakeTinyFamily(GetParam(), {.layers = 3, .vocab = kVocab}),
                         draft_.path());
  }
  // pages: of the target; 0: many.
  lab::LocalReplicaOptions Options(bool free_windows, int64_t pages = 0) {
    lab::LocalReplicaOptions options =
        test::CheckedReplica::OptionsOf(target_.path(), draft_.path());
    options.free_windows = free_windows;
    if (pages > 0) {
      test::CheckedReplica replica(options);
      const kernels::KvPool& pool = *replica.replica().target()->kv_pool();
      options.kv_bytes = static_cast<int64_t>(pool.bytes) / pool.shape.blocks * (pages + 1);
    }
    return options;
  }
  // From now on, until what the prefix cache keeps fills the pool.
  void PoisonBeforePasses(test::CheckedReplica* replica) {
    replica->before_pass = [replica, this] {
      for (model::ModelRunner* runner : {replica->replica().target(), replica->replica().draft()}) {
        auto* const pool = static_cast<kernels::cpu::CpuKvPool*>(runner->kv_pool());
        poisoned_ += test::PoisonFreePages(runner, pool->storage.data());
      }
    };
  }
  static void ExpectSame(const test::CheckedReplica::Outcome& got,
                         const test::CheckedReplica::Outcome& want, const std::string& what) {
    ASSERT_EQ(got.hypotheses.size(), want.hypotheses.size()) << what;
    EXPECT_EQ(got.drafted, want.drafted) << what;
    for (size_t i = 0; i < want.hypotheses.size(); ++i) {
      EXPECT_EQ(got.hypotheses[i].tokens, want.hypotheses[i].tokens) << what;
      EXPECT_EQ(got.hypotheses[i].joint_log_probability, want.hypotheses[i].joint_log_probability)
          << what;
    }
  }

  const test::TempDir target_, draft_;
  int64_t poisoned_ = 0;
};

// Chunks of the prompt are longer than the windows, and shorter. Every prompt is decoded twice: the
// second time its beginning is in the cache, if all that a row sees of it is left.
TEST_P(WindowDecodeTest, SameBitsAsIfEverythingWereKept) {
  test::CheckedReplica plain(Options(/*free_windows=*/false));
  for (const int chunk : {256, 8}) {
    lab::LocalReplicaOptions options = Options(/*free_windows=*/true);
    options.chunk = chunk;
    options.kv_bytes = 1 << 19;  // what is free is overwritten before every pass
    test::CheckedReplica freeing(options);
    ASSERT_FALSE(freeing.replica().target()->kv_layout().windows.empty());
    PoisonBeforePasses(&freeing);
    for (const test::MethodCase& method : test::MethodCases([](const auto&) { return true; })) {
      const decoding::DecodingParams params = method.Params(kTokens, kEos, /*seed=*/3);
      for (const bool drafts : {false, true}) {
        if (drafts && method.method->form == decoding::DraftForm::kNone) continue;
        const int width = drafts ? method.DraftWidth(6) : 0, depth = drafts ? kDepth : 0;
        const auto want = plain.Decode(Prompt(9, 60), params, width, depth);
        for (const char* time : {"first", "second"}) {
          ExpectSame(freeing.Decode(Prompt(9, 60), params, width, depth), want,
                     absl::StrCat(method.Name(), drafts ? ", drafts" : "", ", ", time,
                                  ", chunks of ", chunk));
        }
      }
    }
    EXPECT_GT(poisoned_, 1000);
    EXPECT_GT(freeing.replica().target()->blocks()->cache_hits(), 0);
  }
}

// In a pool of no more pages than the bound of one sequence.
TEST_P(WindowDecodeTest, TheBoundIsEnough) {
  test::CheckedReplica plain(Options(/*free_windows=*/false));
  for (const test::MethodCase& method : test::MethodCases([](const auto&) { return true; })) {
    decoding::DecodingParams params = method.Params(150, kEos, /*seed=*/5);
    params.draft_width = method.DraftWidth(4);
    params.draft_depth = kDepth;
    lab::LocalReplicaOptions options = Options(/*free_windows=*/true);
    options.chunk = 32;
    const KvStorage storage = {
        .windows = test::CheckedReplica(options).replica().target()->kv_layout().windows,
        .step_tokens = options.chunk};
    const int64_t pages = decoding::KvPagesBound(params, 80, storage);
    options.kv_bytes = Options(/*free_windows=*/true, pages).kv_bytes;
    test::CheckedReplica tight(options);
    ASSERT_EQ(tight.replica().target()->blocks()->counts().total, pages);
    const bool drafts = method.method->form != decoding::DraftForm::kNone;
    for (const int width : {0, drafts ? params.draft_width : 0}) {
      ExpectSame(tight.Decode(Prompt(9, 80), params, width, kDepth),
                 plain.Decode(Prompt(9, 80), params, width, kDepth), method.Name());
    }
  }
}

// More tokens than the pool could hold if it kept all of them.
TEST_P(WindowDecodeTest, ServesMoreThanThePoolHolds) {
  lab::LocalReplicaOptions options = Options(/*free_windows=*/true);
  options.chunk = 32;
  const auto& windows = test::CheckedReplica(options).replica().target()->kv_layout().windows;
  const auto groups = static_cast<int64_t>(windows.size());
  const auto whole = std::count(windows.begin(), windows.end(), 0);
  const int64_t pages = 14 * whole + 10 * (groups - whole);
  options.kv_bytes = Options(/*free_windows=*/true, pages).kv_bytes;
  ASSERT_LT(pages / groups * kBlockSize, 200);
  decoding::DecodingParams params;
  params.method = decoding::FindMethod("gumbel_coupling");
  params.max_tokens = 140;
  params.sampling.temperature = 0;
  const std::vector<TokenId> prompt = Prompt(5, 60);
  test::CheckedReplica freeing(options);
  const auto got = freeing.Decode(prompt, params, 0, 0);
  EXPECT_EQ(got.hypotheses[0].tokens.size(), 140);
  EXPECT_LE(freeing.target_blocks_used(), pages);
  test::CheckedReplica plain(Options(/*free_windows=*/false));
  ExpectSame(got, plain.Decode(prompt, params, 0, 0), GetParam());
  // Without freeing the same pool has no room for it.
  options.free_windows = false;
  test::CheckedReplica keeping(options);
  EXPECT_DEATH(keeping.Decode(prompt, params, 0, 0), "KV blocks");
}

INSTANTIATE_TEST_SUITE_P(Tiny, WindowDecodeTest, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace coppice::worker
