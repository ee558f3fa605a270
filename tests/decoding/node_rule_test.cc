// Invariants of ALGORITHMS.md 11.6 for the single-sequence verifiers, and whole decodes of every
// method of section 4 by name: what a worker relies on after every round.
#include "decoding/node_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/deterministic_math.h"
#include "decoding/child_law.h"
#include "decoding/greedy_multi_draft.h"
#include "decoding/k_seq.h"
#include "decoding/luce_ot.h"
#include "decoding/method.h"
#include "tests/testing/decode_loop.h"
#include "tests/testing/enumerate_choices.h"

namespace coppice {
namespace {

struct Pair {
  NodeRule rule;
  ChildLaw law;
};
const Pair kPairs[] = {{VerifyRrsIid, ChildLaw::kIid},
                       {VerifyRrsWithoutReplacement, ChildLaw::kWithoutReplacement},
                       {SampleAndCheck, ChildLaw::kMostLikely},
                       {VerifyKSeq, ChildLaw::kIid},
                       {VerifyGreedy, ChildLaw::kGreedy},
                       {VerifyGreedy, ChildLaw::kSpecHub},
                       {VerifyLuceOt, ChildLaw::kIid}};

Distribution Row(const std::vector<double>& mass) {
  Distribution row;
  for (int v = 0; v < mass.size(); ++v) {
    if (mass[v] <= 0) continue;
    row.tokens.push_back(v);
    row.log_probs.push_back(Log(mass[v]));
  }
  return row;
}

// Checks the law of the output; returns P(the output is a draft).
double Acceptance(const Pair& pair, const std::vector<double>& p_mass,
                  const std::vector<double>& q_mass, int n, double tolerance = 1e-12) {
  const Distribution p_row = Row(p_mass), q = Row(q_mass);
  LayerLaw p;
  p.rows.resize(1);
  p.rows[0].sparse = &p_row;
  double accepted = 0;
  std::vector<double> law(p_mass.size(), 0.0);
  EnumerateChoices([&](ScriptedChoices* choices) {
    const std::vector<TokenId> drafts = DrawChildren(pair.law, q, /*hash=*/0, n, choices);
    const NodeVerdict verdict = pair.rule({&p, &q, drafts}, choices);
    law.at(verdict.token) += choices->probability();
    if (verdict.draft >= 0) accepted += choices->probability();
  });
  for (int v = 0; v < p_mass.size(); ++v) EXPECT_NEAR(law[v], p_mass[v], tolerance) << v;
  EXPECT_FALSE(std::isnan(accepted));
  return accepted;
}

TEST(NodeRule, InvariantsOfEveryRule) {
  for (const Pair& pair : kPairs) {
    SCOPED_TRACE(static_cast<int>(&pair - kPairs));
    const std::vector<double> p = {0.5, 0.3, 0.2};
    if (pair.law != ChildLaw::kMostLikely) {
      EXPECT_NEAR(Acceptance(pair, p, p, 2), 1, 1e-12);  // p = q
    }
    EXPECT_NEAR(Acceptance(pair, {0.6, 0.4, 0, 0}, {0, 0, 0.7, 0.3}, 2), 0, 1e-12);  // disjoint
    Acceptance(pair, {0, 1, 0}, {0.5, 0.2, 0.3}, 2);                                 // one-hot p
    EXPECT_NEAR(Acceptance(pair, p, {0, 1, 0}, 2), 0.3, 1e-12);                      // one-hot q
    Acceptance(pair, p, {0.4, 0.6, 0}, 3);  // more drafts than tokens
    Acceptance(pair, {0.5 - 1e-7, 0.3, 0.2}, {0.2, 0.5, 0.3 - 1e-7}, 2, 1e-6);
    Acceptance(pair, p, {0.5 - 1e-16, 0.3, 0.2 + 1e-16}, 2);  // a residual of 1e-16
  }
}

const char* const kMethods[] = {"rejection",
                                "block",
                                "recursive_rejection",
                                "recursive_rejection_wor",
                                "sample_and_check",
                                "k_seq",
                                "spectr",
                                "greedy_multi_draft",
                                "spechub",
                                "luce_ot"};

TEST(SectionFour, DecodesByNameKeepTheirPromises) {
  for (const char* method : kMethods) {
    SCOPED_TRACE(method);
    const MethodRow* row = FindMethod(method);
    ASSERT_NE(row, nullptr);
    EXPECT_TRUE(row->lossless);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      HashLm lm{7, 3 + seed, 4, 9};
      DecodingParams params;
      params.method = method;
      params.seed = seed;
      params.max_tokens = 1 + static_cast<int>(seed % 12);
      params.stop_ids = {static_cast<TokenId>(seed % 3)};
      params.min_tokens = static_cast<int>(seed % 2);
      if (row->form == DraftForm::kTree && row->most_children == 0 && seed % 2 == 0)
        params.draft_tree = seed % 4 == 0 ? "eagle" : "3-2-1";
      const DecodeRun run =
          RunDecode(MakeBeamDecoder(params).value(), params, lm, DraftQuality::kGood, 2, 4);
      ASSERT_EQ(run.result.size(), 1u);
      EXPECT_LE(run.result[0].tokens.size(), params.max_tokens);
    }
  }
}

// One-hot rows emit the argmax whatever the drafts; a draft equal to the target is kept whole.
TEST(SectionFour, TemperatureZeroIsGreedyAndPerfectDraftsAreKept) {
  const HashLm lm{7, 5, 6, 9};
  DecodingParams greedy;
  greedy.warp.temperature = 0;
  greedy.max_tokens = 11;
  greedy.method = "certified";
  const DecodeRun want =
      RunDecode(MakeBeamDecoder(greedy).value(), greedy, lm, DraftQuality::kNone, 0, 0);
  for (const char* method : kMethods) {
    SCOPED_TRACE(method);
    DecodingParams params = greedy;
    params.method = method;
    const DecodeRun run =
        RunDecode(MakeBeamDecoder(params).value(), params, lm, DraftQuality::kIdentical, 2, 4);
    EXPECT_EQ(run.result[0].tokens, want.result[0].tokens);
    EXPECT_EQ(run.layers_per_round[0], 5);
  }
  for (const char* method : {"rejection", "block", "recursive_rejection", "k_seq", "spectr"}) {
    SCOPED_TRACE(method);
    DecodingParams params = greedy;
    params.warp.temperature = 1;
    params.method = method;
    const DecodeRun run =
        RunDecode(MakeBeamDecoder(params).value(), params, lm, DraftQuality::kIdentical, 2, 4);
    EXPECT_EQ(run.layers_per_round[0], 5);
  }
}

}  // namespace
}  // namespace coppice
