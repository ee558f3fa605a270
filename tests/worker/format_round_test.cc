// Whole rounds with a format, with real (tiny) models and without sockets: prefill, draft, verify
// step and commit are those of worker and draft node. The draft node knows the format, or it does
// not. Tokens are those of toy_text.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "lab/experiments/local_replica.h"
#include "sampling/rng.h"
#include "tests/testing/formatted_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::worker {
namespace {

using ::testing::HasSubstr;

constexpr int kVocab = 24;
constexpr TokenId kStop = 10;
constexpr double kNothing = -std::numeric_limits<double>::infinity();

void Write(const std::string& dir, uint64_t seed, int layers) {
  test::TinyLlamaOptions options;
  options.vocab = kVocab;
  options.layers = layers;
  options.seed = seed;
  test::WriteTinyLlama(test::MakeTinyLlama(options), dir);
}

enum class Drafts { kNone, kKnowing, kUnknowing };

struct Outcome {
  absl::Status status;
  std::vector<decoding::Hypothesis> hypotheses;
  int passes = 0;
  int drafted = 0, banned = 0;  // nodes of the forests, and those that the format does not allow
};

class FormatRoundTest : public ::testing::Test {
 protected:
  FormatRoundTest() {
    Write(target_.path(), 1, 2);
    Write(draft_.path(), 2, 1);
    lab::LocalReplicaOptions options;
    options.target_dir = target_.path();
    options.draft_dir = draft_.path();
    options.kv_bytes = 8 << 20;
    replica_ = *lab::LocalReplica::Load(options);
  }

  static decoding::DecodingParams Params(const decoding::MethodRow& row,
                                         sampling::DecodingKind kind, uint64_t seed) {
    decoding::DecodingParams params;
    params.kind = kind;
    params.method = &row;
    params.beam_width = kind == sampling::DecodingKind::kMultinomial ? 1 : 3;
    params.num_hypotheses = params.beam_width;
    params.max_tokens = 12;
    params.stop_ids = {kStop};
    params.seed = seed;
    if (row.greedy_only) params.sampling.temperature = 0;
    if (row.form == decoding::DraftForm::kTree) params.draft_tree = "2-1";
    return params;
  }

  // The nodes of a forest that the format does not allow.
  int Banned(const decoding::DraftForest& forest, const test::ToyFormat& format) const {
    int banned = 0;
    for (int node = 0; node < forest.size(); ++node) {
      const RootId root = forest.RootOf(NodeId{node});
      std::vector<TokenId> whole =
          replica_->decoder().paths().Tokens(replica_->decoder().roots()[Index(root)]);
      forest.AppendPath(NodeId{node}, &whole);
      banned += format.AllowsAll(whole) ? 0 : 1;
    }
    return banned;
  }

  absl::Status Decode(const decoding::DecodingParams& params, const test::ToyFormat& format,
                      Drafts drafts, Outcome* outcome) {
    const bool path = params.method->form == decoding::DraftForm::kPath;
    decoding::DraftForest forest = decoding::DraftForest::Empty(1);
    while (true) {
      const absl::Status status = replica_->Round(std::move(forest)).status();
      if (!status.ok()) return status;
      ++outcome->passes;
      const decoding::BeamDecoder& decoder = replica_->decoder();
      for (const decoding::PathId root : decoder.roots())
        EXPECT_NE(decoder.paths().format_state(root), OutputFormat::kBroken);
      if (decoder.finished()) break;
      const int depth = std::min(3, decoder.max_useful_depth());
      forest = decoding::DraftForest::Empty(static_cast<int>(decoder.roots().size()));
      if (drafts != Drafts::kNone && depth > 0) {
        const auto draft = replica_->Draft(path ? 1 : 4, depth);
        if (!draft.ok()) return draft.status();
        forest = *draft;
        outcome->drafted += forest.size();
        outcome->banned += Banned(forest, format);
      }
    }
    outcome->hypotheses = replica_->decoder().Result();
    return absl::OkStatus();
  }

  Outcome Run(const decoding::DecodingParams& params, const test::ToyFormat& format,
              Drafts drafts) {
    Outcome outcome;
    outcome.status =
        replica_->Open({5, 6, 7, 9}, params, drafts != Drafts::kNone, drafts == Drafts::kKnowing);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    outcome.status = Decode(params, format, drafts, &outcome);
    replica_->Close();
    EXPECT_TRUE(replica_->CheckIntegrity().ok()) << replica_->CheckIntegrity();
    EXPECT_EQ(replica_->target_blocks_used(), 0);
    EXPECT_EQ(replica_->draft_blocks_used(), 0);
    return outcome;
  }

  test::TempDir target_, draft_;
  std::unique_ptr<lab::LocalReplica> replica_;
};

void ExpectSame(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.hypotheses.size(), b.hypotheses.size());
  for (size_t i = 0; i < a.hypotheses.size(); ++i) {
    EXPECT_EQ(a.hypotheses[i].tokens, b.hypotheses[i].tokens);
    EXPECT_EQ(a.hypotheses[i].joint_log_probability, b.hypotheses[i].joint_log_probability);
    EXPECT_EQ(a.hypotheses[i].finished, b.hypotheses[i].finished);
  }
}

TEST_F(FormatRoundTest, EveryMethodKeepsTheFormatAndDraftsChangeNoSeededAnswer) {
  int passes[3] = {}, drafted = 0, banned = 0, same = 0;
  for (const decoding::MethodRow& row : decoding::Methods()) {
    for (const sampling::DecodingKind kind : row.serves) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        SCOPED_TRACE(testing::Message() << row.name << " " << sampling::DecodingKindName(kind));
        decoding::DecodingParams params = Params(row, kind, seed);
        const test::ToyFormat format(test::RandomExpression(40 + seed, 2), kVocab, {kStop});
        params.format = format.Make();
        std::vector<Outcome> outcomes;
        for (const Drafts drafts : {Drafts::kNone, Drafts::kKnowing, Drafts::kUnknowing}) {
          if (drafts != Drafts::kNone && row.form == decoding::DraftForm::kNone) continue;
          outcomes.push_back(Run(params, format, drafts));
          const Outcome& outcome = outcomes.back();
          ASSERT_TRUE(outcome.status.ok()) << outcome.status;
          for (const decoding::Hypothesis& hypothesis : outcome.hypotheses) {
            EXPECT_TRUE(format.AllowsAll(hypothesis.tokens));
            EXPECT_EQ(hypothesis.finished, hypothesis.tokens.back() == kStop);
          }
          passes[static_cast<int>(drafts)] += outcome.passes;
          drafted += outcome.drafted;
          if (drafts == Drafts::kKnowing) {
            EXPECT_EQ(outcome.banned, 0);  // the draft keeps to the format
          }
          banned += outcome.banned;
          if (!row.reproducible) continue;
          ExpectSame(outcome, outcomes[0]);
          ++same;
        }
      }
    }
  }
  EXPECT_GT(drafted, 1000);
  EXPECT_GT(banned, 100);  // of nodes that do not know it
  EXPECT_GT(same, 60);
  // What is drafted outside of the format is drafted in vain.
  EXPECT_LT(passes[1], passes[2]);
  EXPECT_LT(passes[2], passes[0]);
}

// A format of which one state could not be walked to its end.
class CutFormat : public OutputFormat {
 public:
  CutFormat(std::shared_ptr<const OutputFormat> whole, State cut)
      : whole_(std::move(whole)), cut_(cut) {}
  State Start() const override { return whole_->Start(); }
  State Next(State state, TokenId token) const override { return whole_->Next(state, token); }
  std::shared_ptr<const AllowedTokens> Allowed(State state) const override {
    const auto allowed = whole_->Allowed(state);
    if (state != cut_) return allowed;
    asked_ = true;
    auto some = std::make_shared<AllowedTokens>(*allowed);
    some->listed.resize(1);
    some->count = 1;
    some->bits.assign(some->bits.size(), 0);
    some->bits[some->listed[0] / 64] = uint64_t{1} << (some->listed[0] % 64);
    return some;
  }
  bool CutShort(State state) const override { return state == cut_ && asked_; }

 private:
  const std::shared_ptr<const OutputFormat> whole_;
  const State cut_;
  mutable std::atomic<bool> asked_{false};
};

// Also where the beam that suffers is not among the next ones.
TEST_F(FormatRoundTest, NothingIsDecidedFromTokensThatAreNotAllKnown) {
  const grammar::Part letter = grammar::Character({{'a', 'c'}});
  const test::ToyFormat format(grammar::Repeat(letter, 4, 9), kVocab, {kStop});
  const auto whole = format.Make();
  int failed = 0, untouched = 0;
  for (const char* method :
       {"speculative_beam_search", "gumbel_coupling", "gumbel_top_k", "dsbd"}) {
    const decoding::MethodRow& row = *decoding::FindMethod(method);
    for (uint64_t seed = 0; seed < 6; ++seed) {
      decoding::DecodingParams params = Params(row, row.serves.front(), seed);
      params.format = whole;
      const Outcome right = Run(params, format, Drafts::kKnowing);
      ASSERT_TRUE(right.status.ok()) << right.status;
      for (OutputFormat::State cut = 1; cut < 8; ++cut) {
        if (whole->Allowed(cut)->listed.size() < 2) continue;
        params.format = std::make_shared<CutFormat>(whole, cut);
        const Outcome outcome = Run(params, format, Drafts::kKnowing);
        if (outcome.status.ok()) {  // nothing was read there, or only of drafts that were left
          ExpectSame(outcome, right);
          ++untouched;
        } else {
          EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted);
          ++failed;
        }
      }
    }
  }
  EXPECT_GT(failed, 20);
  EXPECT_GT(untouched, 5);
}

class BannedFormatTest : public FormatRoundTest {
 protected:
  static decoding::DecodingParams Sampled(const test::ToyFormat& format) {
    const auto kind = sampling::DecodingKind::kBeamSampling;
    decoding::DecodingParams params = Params(*decoding::FindMethod("gumbel_coupling"), kind, 3);
    params.format = format.Make();
    return params;
  }
  void ExpectWorksAfterwards(const test::ToyFormat& format) {
    EXPECT_TRUE(Run(Sampled(format), format, Drafts::kKnowing).status.ok());
  }
};

// "c" in the second place, and bans of all tokens that begin with it.
TEST_F(BannedFormatTest, ABiasThatLeavesNothingEndsThatSequence) {
  const test::ToyFormat format(
      grammar::Sequence({grammar::Literal("a"), grammar::Repeat(grammar::Literal("c"), 1, 9)}),
      kVocab, {kStop});
  for (const Drafts drafts : {Drafts::kNone, Drafts::kKnowing, Drafts::kUnknowing}) {
    decoding::DecodingParams params = Sampled(format);
    for (TokenId token = 0; token < kVocab; ++token) {
      if (test::ToyToken(token)[0] == 'c') params.sampling.logit_bias.emplace_back(token, kNothing);
    }
    const Outcome outcome = Run(params, format, drafts);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(outcome.status.message()),
                HasSubstr("bans every token that the format"));
    ExpectWorksAfterwards(format);
  }
}

// With nothing left a row is one-hot on token 0. If that ends the hypothesis, or is its last token,
// no beam is left that shows it.
TEST_F(BannedFormatTest, AnAnswerWithoutTheFormatIsNoAnswer) {
  const auto all = [](decoding::DecodingParams* params) {
    for (TokenId token = 0; token < kVocab; ++token)
      params->sampling.logit_bias.emplace_back(token, kNothing);
  };
  {
    const test::ToyFormat format(grammar::Literal("bc"), kVocab, {0});
    decoding::DecodingParams params = Sampled(format);
    params.stop_ids = {0};
    params.format = format.Make();
    all(&params);
    EXPECT_FALSE(Run(params, format, Drafts::kNone).status.ok());
  }
  const test::ToyFormat format(grammar::Literal("bc"), kVocab, {kStop});
  decoding::DecodingParams params = Sampled(format);
  params.max_tokens = 1;
  all(&params);
  EXPECT_FALSE(Run(params, format, Drafts::kNone).status.ok());
  params.sampling.logit_bias.clear();
  EXPECT_TRUE(Run(params, format, Drafts::kNone).status.ok());
}

// No token has an "x".
TEST_F(BannedFormatTest, AVocabularyThatLacksAByteEndsThatSequence) {
  const test::ToyFormat format(
      grammar::Sequence({grammar::Repeat(grammar::Literal("a"), 3, 3), grammar::Literal("x")}),
      kVocab, {kStop});
  const Outcome outcome = Run(Sampled(format), format, Drafts::kKnowing);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("the vocabulary has no token"));
}

// 2^20 states: the last 20 bytes count.
TEST_F(BannedFormatTest, AFormatThatNeedsTooManyStatesEndsThatSequence) {
  const grammar::Part either = grammar::Character({{'a', 'b'}});
  const test::ToyFormat large(
      grammar::Sequence({grammar::Repeat(either, 0, grammar::Expression::kNoMost),
                         grammar::Literal("a"), grammar::Repeat(either, 20, 20)}),
      kVocab, {kStop});
  const test::ToyFormat small(grammar::Repeat(either, 3, 5), kVocab, {kStop});
  decoding::DecodingParams params = Sampled(large);
  EXPECT_TRUE(Run(params, large, Drafts::kKnowing).status.ok());
  OutputFormat::State state = params.format->Start();
  for (uint64_t i = 0; state >= 0 && i < 1'000'000; ++i)
    state = params.format->Next(state, static_cast<TokenId>(sampling::Finalize(i) % 2));
  EXPECT_TRUE(Run(params, large, Drafts::kKnowing).status.ok());  // what is known stays known
  params.seed += 1;
  const Outcome outcome = Run(params, large, Drafts::kKnowing);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("more states"));
  ExpectWorksAfterwards(small);
  ExpectWorksAfterwards(large);  // made again
}

}  // namespace
}  // namespace coppice::worker
