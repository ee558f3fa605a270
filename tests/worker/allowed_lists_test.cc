// With a format of few tokens, ranks and devices send the logits of these tokens. Whole rounds with
// a real (tiny) model then give what whole rows give, bit for bit: with drafts and without, for
// beams of any width.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"
#include "decoding/row_need.h"
#include "lab/experiments/local_replica.h"
#include "tests/testing/sparse_paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"
#include "worker/verify_step.h"

namespace coppice::worker {
namespace {

constexpr int kVocab = 700;

void Write(const std::string& dir, uint64_t seed) {
  test::TinyLlamaOptions options;
  options.vocab = kVocab;
  options.layers = 1;
  options.seed = seed;
  test::WriteTinyLlama(test::MakeTinyLlama(options), dir);
}

std::unique_ptr<lab::LocalReplica> Load(const std::string& target, const std::string& draft,
                                        bool lists) {
  lab::LocalReplicaOptions options;
  options.target_dir = target;
  options.draft_dir = draft;
  options.kv_bytes = 64 << 20;
  options.always_list = lists;
  return *lab::LocalReplica::Load(options);
}

std::vector<decoding::Hypothesis> Decode(const decoding::DecodingParams& params, bool drafts,
                                         lab::LocalReplica* replica) {
  EXPECT_TRUE(replica->Open({5, 6, 7, 9}, params, drafts).ok());
  decoding::DraftForest forest = decoding::DraftForest::Empty(1);
  while (true) {
    const auto verdict = replica->Round(std::move(forest));
    EXPECT_TRUE(verdict.ok()) << verdict.status();
    if (!verdict.ok() || replica->decoder().finished()) break;
    const int depth = std::min(2, replica->decoder().max_useful_depth());
    forest = decoding::DraftForest::Empty(static_cast<int>(replica->decoder().roots().size()));
    if (drafts && depth > 0) forest = *replica->Draft(params.beam_width, depth);
  }
  std::vector<decoding::Hypothesis> result = replica->decoder().Result();
  replica->Close();
  return result;
}

TEST(AllowedListsTest, RoundsOfListsAreRoundsOfWholeRows) {
  const test::TempDir target, draft;
  Write(target.path(), 1);
  Write(draft.path(), 2);
  const auto whole = Load(target.path(), draft.path(), /*lists=*/false);
  const auto lists = Load(target.path(), draft.path(), /*lists=*/true);
  for (const auto& [method, kind] :
       {std::pair("speculative_beam_search", sampling::DecodingKind::kBeamSearch),
        std::pair("gumbel_top_k", sampling::DecodingKind::kBeamSamplingWithoutReplacement),
        std::pair("gumbel_coupling", sampling::DecodingKind::kBeamSampling),
        std::pair("dsbd", sampling::DecodingKind::kBeamSampling)}) {
    for (const int width : {1, 6, 128}) {
      for (const bool drafts : {false, true}) {
        SCOPED_TRACE(absl::StrCat(method, ", ", width, " beams", drafts ? ", drafts" : ""));
        decoding::DecodingParams params;
        params.kind = kind;
        params.method = decoding::FindMethod(method);
        params.beam_width = params.num_hypotheses = width;
        params.max_tokens = 5;
        params.stop_ids = {0};
        params.seed = 4;
        params.format = std::make_shared<test::SparsePaths>(kVocab, /*one_in=*/60);
        const auto want = Decode(params, drafts, whole.get());
        const auto got = Decode(params, drafts, lists.get());
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(got[i].tokens, want[i].tokens);
          EXPECT_EQ(got[i].joint_log_probability, want[i].joint_log_probability);
        }
      }
    }
  }
}

// The rows of a round list what their own paths allow.
TEST(AllowedListsTest, EveryRowListsTheTokensOfItsPath) {
  auto format = std::make_shared<test::SparsePaths>(kVocab, /*one_in=*/60);
  model::BlockManager blocks({.num_blocks = 50, .prefix_cache = false});
  Sequence sequence;
  sequence.prompt = {1, 2};
  sequence.params.kind = sampling::DecodingKind::kBeamSearch;
  sequence.params.method = decoding::FindMethod("speculative_beam_search");
  sequence.params.format = format;
  sequence.params.stop_ids = {0};
  sequence.decoder = *decoding::MakeBeamDecoder(sequence.params);
  sequence.kv = blocks.Open(sequence.prompt, nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(sequence.kv, {1}).ok());
  sequence.forest = decoding::DraftForest::Empty(1);
  const auto after = [&](const std::vector<TokenId>& path) {
    OutputFormat::State state = format->Start();
    for (const TokenId token : path) state = format->Next(state, token);
    const auto allowed = format->Allowed(state);
    return allowed == nullptr ? std::vector<TokenId>() : allowed->listed;
  };
  const TokenId first = after({})[0], second = after({first})[0];
  TokenId other = 1;  // not allowed
  while (format->Allows(sampling::kRootHash, other)) ++other;
  sequence.forest.Add(RootId{0}, first);
  sequence.forest.Add(RootId{0}, other);
  sequence.forest.Add(NodeId{0}, second);
  sequence.forest.layer_begin = {0, 2, 3};
  model::StepBuilder step(&blocks, kVocab);
  auto rows = ReserveRows(&sequence, &blocks);
  ASSERT_TRUE(rows.ok());
  AppendRows(sequence, &step, &*rows);
  const StepPlan plan = step.Take();
  const std::vector<std::vector<TokenId>> paths = {{}, {first}, {other}, {first, second}};
  ASSERT_EQ(plan.needs.size(), paths.size());
  for (size_t row = 0; row < paths.size(); ++row) {
    const RowNeed& need = plan.needs[row];
    EXPECT_EQ(need.form, RowNeed::Form::kRaw);
    EXPECT_TRUE(need.raw_sums);
    std::vector<TokenId> listed;
    for (int i = need.bias_begin; i < need.bias_end; ++i) listed.push_back(plan.bias[i].first);
    EXPECT_EQ(listed, after(paths[row])) << row;
  }
}

}  // namespace
}  // namespace coppice::worker
