// Wide beams over a real (small) model: whole rounds, with KV and drafts, decide what a second
// implementation without KV, batches and drafts decides in f64 from rows that were computed one by
// one. Every hypothesis is compared.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/sparse_paths.h"

namespace coppice::worker {
namespace {

constexpr char kTarget[] = "tests/models/stories260k";
constexpr char kDraft[] = "tests/models/stories260k-draft";
constexpr TokenId kEos = 2;

// The rows of the model by the hash of their path. Knows the children of every path that it was
// asked for.
class RowsByHash {
 public:
  RowsByHash(std::vector<TokenId> prompt, lab::LocalReplica* replica)
      : prompt_(std::move(prompt)), replica_(replica) {
    paths_.emplace(sampling::kRootHash, std::vector<TokenId>());
  }

  std::vector<double> Row(uint64_t hash) {
    auto& row = rows_[hash];
    if (!row.empty()) return row;
    std::vector<TokenId> path = paths_.at(hash);
    const auto logits = replica_->TargetLogits(prompt_, path);
    EXPECT_TRUE(logits.ok()) << logits.status();
    const int vocab = replica_->vocab_size();
    row.assign(logits->end() - vocab, logits->end());
    path.push_back(0);
    for (TokenId token = 0; token < vocab; ++token) {
      path.back() = token;
      paths_.emplace(sampling::ExtendHash(hash, token), path);
    }
    return row;
  }

 private:
  const std::vector<TokenId> prompt_;
  lab::LocalReplica* const replica_;
  std::unordered_map<uint64_t, std::vector<TokenId>> paths_;
  std::unordered_map<uint64_t, std::vector<double>> rows_;
};

struct WideRound {
  const char* method;
  sampling::DecodingKind kind;
  bool few;  // with a format that allows few tokens
};

class WideRoundTest : public testing::TestWithParam<WideRound> {};

TEST_P(WideRoundTest, EveryHypothesisIsThatOfTheReference) {
  const WideRound round = GetParam();
  lab::LocalReplicaOptions options = test::CheckedReplica::OptionsOf(kTarget, kDraft);
  options.kv_bytes = 64 << 20;
  options.max_rows = 2048;
  test::CheckedReplica replica(options);
  const std::vector<TokenId> prompt = {1, 403, 407, 261, 378};
  const int vocab = replica.replica().vocab_size();
  const bool ranks = round.kind == sampling::DecodingKind::kBeamSearch;
  RowsByHash rows(prompt, &replica.replica());
  int longer_rounds = 0;
  for (const int width : {50, 128, 512}) {
    SCOPED_TRACE(width);
    decoding::DecodingParams params;
    params.kind = round.kind;
    params.method = decoding::FindMethod(round.method);
    params.beam_width = params.num_hypotheses = width;
    params.max_tokens = 4;
    params.seed = static_cast<uint64_t>(width);
    params.stop_ids = {kEos};
    params.stop_when_full = false;
    params.refill = true;
    const auto format = std::make_shared<const test::SparsePaths>(vocab, /*one_in=*/24);
    const auto target = [&](uint64_t hash) {
      std::vector<double> row = rows.Row(hash);
      for (TokenId token = 0; round.few && !ranks && token < vocab; ++token) {
        if (!format->Allows(hash, token)) row[token] = -std::numeric_limits<double>::infinity();
      }
      return row;
    };
    decoding::ReferenceDecoder reference(params, target, vocab);
    if (round.few && ranks) {
      reference.LeaveOut([&](absl::Span<const TokenId> path, TokenId token) {
        return !format->Allows(sampling::HashPath(path), token);
      });
    }
    const std::vector<decoding::ReferenceBeam> want = reference.Run();
    if (round.few) params.format = format;
    for (const int draft_width : {0, width}) {
      const auto got = replica.Decode(prompt, params, draft_width, /*depth=*/2);
      ASSERT_EQ(got.hypotheses.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got.hypotheses[i].tokens, want[i].path) << i;
        EXPECT_NEAR(got.hypotheses[i].joint_log_probability, want[i].log_score,
                    1e-12 * (1 + std::abs(want[i].log_score)));
      }
      if (draft_width > 0) longer_rounds += got.layers > got.passes ? 1 : 0;
    }
  }
  EXPECT_GT(longer_rounds, 0);  // drafts took part
}

INSTANTIATE_TEST_SUITE_P(
    Methods, WideRoundTest,
    testing::Values(
        WideRound{"speculative_beam_search", sampling::DecodingKind::kBeamSearch, false},
        WideRound{"speculative_beam_search", sampling::DecodingKind::kBeamSearch, true},
        WideRound{"gumbel_top_k", sampling::DecodingKind::kBeamSamplingWithoutReplacement, false},
        WideRound{"gumbel_top_k", sampling::DecodingKind::kBeamSamplingWithoutReplacement, true},
        WideRound{"gumbel_coupling", sampling::DecodingKind::kBeamSampling, false},
        WideRound{"gumbel_coupling", sampling::DecodingKind::kBeamSampling, true}),
    [](const testing::TestParamInfo<WideRound>& info) {
      return absl::StrCat(info.param.method, info.param.few ? "_few" : "_all");
    });

}  // namespace
}  // namespace coppice::worker
