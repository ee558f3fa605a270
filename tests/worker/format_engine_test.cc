// Sequences with a format through the leader's loop, with draft nodes that know the format, that
// do not, and without. Tokens are those of toy_text.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "grammar/compile.h"
#include "tests/testing/language.h"
#include "tests/testing/toy_text.h"
#include "tests/worker/draft_node_thread.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;

constexpr TokenId kStop = 10;
constexpr double kNothing = -std::numeric_limits<double>::infinity();

std::shared_ptr<const tokenizer::Vocabulary> Toys() {
  return std::make_shared<const tokenizer::Vocabulary>(test::ToyTokenizer(kVocab));
}

class FormatEngineTest : public EngineTest {
 protected:
  static proto::StartSequence Start(uint64_t id, const char* method, const std::string& regex,
                                    std::vector<std::pair<TokenId, double>> bias = {},
                                    int max_tokens = 20) {
    decoding::DecodingParams params = Params();
    params.method = decoding::FindMethod(method);
    params.kind = params.method->serves.front();
    params.plain = false;
    params.seed = id;
    params.beam_width = params.num_hypotheses =
        params.kind == sampling::DecodingKind::kMultinomial ? 1 : 3;
    params.max_tokens = max_tokens;
    params.stop_ids = {kStop};
    params.draft_width = 2 * params.beam_width;
    params.draft_depth = 2;
    params.sampling.logit_bias = std::move(bias);
    if (!regex.empty()) params.format_spec = {FormatSpec::Kind::kRegex, regex};
    return MakeStart(id, params);
  }
  void RunWithToys(bool suffix_drafts = true) { RunWith(Toys(), suffix_drafts); }
  void RunWith(std::shared_ptr<const tokenizer::Vocabulary> vocabulary, bool suffix_drafts = true) {
    EngineOptions options = Options(runner_.get());
    options.vocabulary = std::move(vocabulary);
    options.suffixes.on = suffix_drafts;
    RunOn(runner_.get(), options, clock_);
  }
  static void ExpectFormat(const proto::SequenceUpdate& update, const std::string& regex) {
    const test::Language language(*grammar::ReadFormat({FormatSpec::Kind::kRegex, regex}));
    ASSERT_GT(update.hypotheses_size(), 0);
    for (const proto::Hypothesis& hypothesis : update.hypotheses()) {
      std::string text;
      for (const TokenId token : hypothesis.tokens()) {
        if (token != kStop) text += test::ToyToken(token);
      }
      const bool ended = *hypothesis.tokens().rbegin() == kStop;
      EXPECT_TRUE(ended ? language.Has(text) : language.Begins(text)) << text << " " << regex;
    }
  }
};

const std::vector<std::string> kFormats = {"(ab)+c", "a(b|c){2,30}", "(a| b)*", "c?(a{1,3}b)+"};

TEST_F(FormatEngineTest, AnswersHaveTheFormatWithAnyDraftNode) {
  draft_node::DraftServiceOptions knowing;
  knowing.vocabulary = Toys();
  const DraftNodeThread knows(Tiny(), "direct://127.0.0.1:*", knowing);
  const DraftNodeThread knows_not(Tiny(), "direct://127.0.0.1:*");
  std::map<uint64_t, proto::SequenceUpdate> plain;
  uint64_t drafted[4] = {}, accepted[4] = {};
  // None, one that knows formats, one that does not, drafts from their own texts.
  for (const int node : {0, 1, 2, 3}) {
    SCOPED_TRACE(node);
    proto::DraftNodes nodes;
    if (node == 1 || node == 2) nodes = (node == 1 ? knows : knows_not).Nodes();
    coordinator_.Send(nodes);
    uint64_t id = 0;
    std::map<uint64_t, std::string> format;
    for (const char* method : {"gumbel_coupling", "gumbel_top_k", "speculative_beam_search",
                               "joint_gumbel_coupling", "dsbd"}) {
      for (const std::string& regex : kFormats) {
        format[++id] = regex;
        coordinator_.Start(Start(id, method, regex));
      }
    }
    RunWithToys(/*suffix_drafts=*/node == 3);
    ASSERT_THAT(coordinator_.errors(), IsEmpty());
    for (const auto& [sequence, regex] : format) {
      const proto::SequenceUpdate& update = coordinator_.finished().at(sequence);
      ExpectFormat(update, regex);
      if (node == 0) plain[sequence] = update;
      const bool seeded = sequence <= 4 * kFormats.size();
      if (seeded) ExpectSameAnswer(update, plain.at(sequence));
      drafted[node] += update.stats().drafted_nodes();
      accepted[node] += update.stats().accepted_nodes();
    }
  }
  EXPECT_EQ(drafted[0], 0u);
  EXPECT_GT(drafted[3], 100u);
  EXPECT_GT(drafted[1], 100u);
  EXPECT_GT(drafted[2], 100u);
  // The draft is the target: where it knows the format, most of its tokens are right.
  EXPECT_GT(accepted[1] * drafted[2], accepted[2] * drafted[1]);
}

TEST_F(FormatEngineTest, WithoutAVocabularyFormatsAreRefused) {
  coordinator_.Start(Start(1, "gumbel_coupling", "a+"));
  coordinator_.Start(Start(2, "gumbel_coupling", ""));
  Run();
  ASSERT_THAT(coordinator_.errors(), ElementsAre(Key(1)));
  EXPECT_EQ(coordinator_.errors().at(1).error_code(), "unsupported_combination");
  EXPECT_THAT(coordinator_.finished(), ElementsAre(Key(2)));
}

class SpaceDropping : public test::ToyTokenizer {
 public:
  using ToyTokenizer::ToyTokenizer;
  int LeadingSpacesDropped() const override { return 1; }
};

// Such a tokenizer drops a space at the beginning of a whole text, which may be the format's.
TEST_F(FormatEngineTest, AFormatNeedsTextBeforeItIfSpacesAreDropped) {
  proto::StartSequence empty = Start(1, "gumbel_coupling", "(a| b)*");
  empty.clear_prompt();
  empty.add_prompt(10);  // no text
  coordinator_.Start(empty);
  proto::StartSequence text = Start(2, "gumbel_coupling", "(a| b)*");
  text.clear_prompt();
  text.add_prompt(10);
  text.add_prompt(0);
  coordinator_.Start(text);
  RunWith(std::make_shared<const tokenizer::Vocabulary>(SpaceDropping(kVocab)));
  ASSERT_THAT(coordinator_.errors(), ElementsAre(Key(1)));
  EXPECT_EQ(coordinator_.errors().at(1).error_code(), "unsupported_combination");
  EXPECT_THAT(coordinator_.errors().at(1).error_message(), HasSubstr("drops spaces"));
}

// The others give the answers that they give alone.
TEST_F(FormatEngineTest, ABiasThatLeavesNothingFailsThatSequenceAlone) {
  std::vector<std::pair<TokenId, double>> bans;
  for (TokenId token = 0; token < kVocab; ++token) {
    if (test::ToyToken(token)[0] == 'c') bans.emplace_back(token, kNothing);
  }
  coordinator_.Start(Start(1, "gumbel_coupling", "a{2}b"));
  coordinator_.Start(Start(3, "gumbel_coupling", ""));
  RunWithToys();
  const std::map<uint64_t, proto::SequenceUpdate> alone = coordinator_.finished();
  ASSERT_EQ(alone.size(), 2u);
  coordinator_.Start(Start(1, "gumbel_coupling", "a{2}b"));
  coordinator_.Start(Start(2, "gumbel_coupling", "a{2}c+", bans));
  coordinator_.Start(Start(3, "gumbel_coupling", ""));
  RunWithToys();
  ASSERT_THAT(coordinator_.errors(), ElementsAre(Key(2)));
  EXPECT_THAT(coordinator_.errors().at(2).error_message(),
              HasSubstr("bans every token that the format"));
  for (const uint64_t id : {1, 3}) ExpectSameAnswer(coordinator_.finished().at(id), alone.at(id));
}

// After two letters, tens of thousands of ways lead to the next.
TEST_F(FormatEngineTest, AFormatThatNeedsTooMuchFailsThatSequenceAlone) {
  const std::vector<std::pair<TokenId, double>> no_end = {{kStop, kNothing}};
  coordinator_.Start(Start(1, "gumbel_coupling", "(a|b)*", no_end, 40));
  coordinator_.Start(Start(2, "gumbel_coupling", "[ab]{2}(([ab]?){10000}){6}", no_end, 50));
  coordinator_.Start(Start(3, "gumbel_coupling", "", no_end, 40));
  RunWithToys();
  ASSERT_THAT(coordinator_.errors(), ElementsAre(Key(2)));
  EXPECT_THAT(coordinator_.errors().at(2).error_message(), HasSubstr("more states"));
  EXPECT_THAT(coordinator_.finished(), ElementsAre(Key(1), Key(3)));
}

}  // namespace
}  // namespace coppice::worker
