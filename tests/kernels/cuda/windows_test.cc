// Models with windows on the simulated device: freeing the KV that no row sees changes no bit, while
// every free page holds NaN. F32 attends row by row, BF16 by tiles; exact mode has a work list of its
// own; draft forests grow on the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "decoding/method.h"
#include "kernels/cuda/runtime/cuda_weights.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/poison.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"

namespace coppice::kernels {
namespace {

constexpr int kVocab = 1500;  // rows come as candidate lists, which a device needs for a draft

struct Shape {
  std::string name, family, dtype;
  bool exact = false;
};

class CudaWindowsTest : public testing::TestWithParam<Shape> {
 protected:
  CudaWindowsTest() {
    Write(target_.path(), 4);
    Write(draft_.path(), 3);
  }
  static void Write(const std::string& dir, int layers) {
    test::WriteTinyLlama(
        test::MakeTinyFamily(GetParam().family,
                             {.layers = layers, .vocab = kVocab, .dtype = GetParam().dtype}),
        dir);
  }
  lab::LocalReplicaOptions Options(bool free_windows, bool device_forests) const {
    lab::LocalReplicaOptions options =
        test::CheckedReplica::OptionsOf(target_.path(), draft_.path());
    options.backend = "cuda";
    options.exact = GetParam().exact;
    options.kv_bytes = 1 << 20;
    options.free_windows = free_windows;
    options.device_forests = device_forests;
    options.chunk = 24;
    return options;
  }
  static void PoisonBeforePasses(test::CheckedReplica* replica) {
    replica->before_pass = [replica] {
      for (model::ModelRunner* runner : {replica->replica().target(), replica->replica().draft()}) {
        auto* const pool = static_cast<cuda::CudaKvPool*>(runner->kv_pool());
        ASSERT_GT(test::PoisonFreePages(runner, pool->storage.data()), 0);
      }
    };
  }

  const test::TempDir target_, draft_;
};

TEST_P(CudaWindowsTest, SameBitsAsIfEverythingWereKept) {
  std::vector<TokenId> prompt = {9};
  while (prompt.size() < 60) prompt.push_back((prompt.back() * 37 + 11) % kVocab);
  decoding::DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSearch;
  params.method = decoding::FindMethod("speculative_beam_search");
  params.beam_width = params.num_hypotheses = 4;
  params.max_tokens = 12;
  params.draft_top_k = 30;
  for (const bool device_forests : {true, false}) {
    test::CheckedReplica keeping(Options(/*free_windows=*/false, device_forests));
    test::CheckedReplica freeing(Options(/*free_windows=*/true, device_forests));
    ASSERT_FALSE(freeing.replica().target()->kv_layout().windows.empty());
    PoisonBeforePasses(&freeing);
    for (const int depth : {0, 3}) {
      params.seed = depth;
      const int width = depth == 0 ? 0 : 8;
      const auto want = keeping.Decode(prompt, params, width, depth, /*top=*/3);
      const auto got = freeing.Decode(prompt, params, width, depth, /*top=*/3);
      ASSERT_EQ(got.hypotheses.size(), want.hypotheses.size());
      EXPECT_EQ(got.drafted, want.drafted);
      for (size_t i = 0; i < want.hypotheses.size(); ++i) {
        EXPECT_EQ(got.hypotheses[i].tokens, want.hypotheses[i].tokens);
        EXPECT_EQ(got.hypotheses[i].joint_log_probability,
                  want.hypotheses[i].joint_log_probability);
        ASSERT_EQ(got.scores[i].size(), want.scores[i].size());
        for (size_t t = 0; t < want.scores[i].size(); ++t)
          EXPECT_EQ(got.scores[i][t].top, want.scores[i][t].top);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CudaWindowsTest,
                         testing::Values(Shape{"Gemma3", "gemma3", "F32"},
                                         Shape{"Gemma3Bf16", "gemma3", "BF16"},
                                         Shape{"Gemma3Exact", "gemma3", "BF16", true},
                                         Shape{"MistralExact", "mistral", "F32", true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace coppice::kernels
