// Exact mode for those who ask: the engine's answer to a request, tokens and scores, does not
// depend on what else it serves, nor on whether a beginning of the answer was computed by another
// engine.
#include <gmock/gmock.h>

#include "kernels/cuda/simulator/fake/fake_device.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

namespace fake = kernels::cuda::fake;

class ExactEngineTest : public EngineTest {
 protected:
  ~ExactEngineTest() override { EXPECT_THAT(fake::Violations(), testing::IsEmpty()); }

  void Load(const char* dtype, bool exact, const char* kv_dtype = "auto") {
    model::ModelRunnerOptions options;
    options.dir = dir_.path();
    options.backend = "cuda";
    options.dtype = dtype;
    options.kv_dtype = kv_dtype;
    options.kv_bytes = 4 << 20;
    options.threads = 1;
    options.max_rows = 64;
    options.exact = exact;
    runner_ = model::ModelRunner::Load(options, single_.get()).value();
  }

  static decoding::DecodingParams Asked(int i) {
    decoding::DecodingParams params;
    params.plain = true;
    params.max_tokens = 8;
    params.seed = i;
    params.kind = i % 3 == 0   ? sampling::DecodingKind::kMultinomial
                  : i % 3 == 1 ? sampling::DecodingKind::kBeamSearch
                               : sampling::DecodingKind::kBeamSampling;
    params.beam_width = params.num_hypotheses = i % 3 == 0 ? 1 : 3;
    if (i % 3 == 0) params.sampling.temperature = 0;  // greedy
    return params;
  }
  static std::vector<TokenId> Prompt(int i) {
    std::vector<TokenId> prompt(3 + 5 * i % 29, static_cast<TokenId>(i + 3));
    prompt.back() = 7;
    return prompt;
  }

  // The answers to some of the requests, which are served together.
  std::map<uint64_t, proto::SequenceUpdate> Serve(const std::vector<int>& requests) {
    coordinator_ = QueuedCoordinator();
    for (const int i : requests) coordinator_.Start(MakeStart(i + 1, Asked(i), Prompt(i)));
    Run();
    EXPECT_THAT(coordinator_.errors(), testing::IsEmpty());
    return coordinator_.finished();
  }
  // How many of the answers that are given alone are others among 7 and 14 requests.
  int CountOthers() {
    std::vector<int> all(14);
    std::iota(all.begin(), all.end(), 0);
    const auto fourteen = Serve(all);
    const auto seven = Serve({0, 1, 2, 3, 4, 5, 6});
    int others = 0;
    for (const int i : {0, 1, 2, 4, 5}) {
      const std::string alone = Text(Serve({i}).at(i + 1));
      others += Text(seven.at(i + 1)) != alone;
      others += Text(fourteen.at(i + 1)) != alone;
    }
    return others;
  }
  static std::string Text(const proto::SequenceUpdate& update) {
    std::string text;
    EXPECT_GT(update.hypotheses_size(), 0);
    for (const auto& hypothesis : update.hypotheses()) text += hypothesis.SerializeAsString();
    return text;
  }
};

TEST_F(ExactEngineTest, AnAnswerDoesNotDependOnTheOthers) {
  for (const char* dtype : {"f32", "bf16"}) {
    Load(dtype, /*exact=*/true);
    EXPECT_EQ(CountOthers(), 0) << dtype;
  }
  Load("bf16", /*exact=*/true, "int8");
  EXPECT_EQ(CountOthers(), 0) << "KV in 8 bits";
}

TEST_F(ExactEngineTest, WithoutItAnAnswerDoes) {
  Load("bf16", /*exact=*/false);
  EXPECT_GT(CountOthers(), 0);
}

// As when a replica is lost: the tokens so far are given to another as the end of the prompt, and
// the rest of the answer is the same.
TEST_F(ExactEngineTest, AnAnswerGoesOnElsewhere) {
  Load("bf16", /*exact=*/true);
  decoding::DecodingParams params = Asked(0);
  coordinator_.Start(MakeStart(1, params, Prompt(9)));
  Run();
  const std::vector<TokenId> whole = coordinator_.stable(1);
  ASSERT_EQ(whole.size(), 8u);
  for (const int done : {1, 4, 7}) {
    Load("bf16", /*exact=*/true);
    std::vector<TokenId> prompt = Prompt(9);
    prompt.insert(prompt.end(), whole.begin(), whole.begin() + done);
    params.max_tokens = 8 - done;
    coordinator_ = QueuedCoordinator();
    coordinator_.Start(MakeStart(1, params, prompt));
    for (int i = 1; i < 5; ++i) coordinator_.Start(MakeStart(i + 1, Asked(i), Prompt(i)));
    Run();
    EXPECT_THAT(coordinator_.stable(1),
                testing::ElementsAreArray(whole.begin() + done, whole.end()));
  }
}

}  // namespace
}  // namespace coppice::worker
