// Invariants of tests/decoding/README.md 6 and 7 for whole decodes by every method, including the
// Gumbel methods: drafts equal to the target or disjoint from it, rows in both forms, logits of
// -inf, scores as sums in path order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sampling/deterministic_math.h"
#include "sampling/logits_processing.h"
#include "sampling/target_row.h"
#include "tests/testing/named_decode.h"

namespace coppice::decoding {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr sampling::DecodingKind kKinds[] = {
    sampling::DecodingKind::kMultinomial, sampling::DecodingKind::kBeamSampling,
    sampling::DecodingKind::kBeamSamplingWithoutReplacement, sampling::DecodingKind::kBeamSearch};

test::NamedSetting Setting(const MethodRow& row, sampling::DecodingKind kind, int vocab,
                           uint64_t seed) {
  const test::HashLm lm{vocab, /*salt=*/3 + seed, /*power=*/3, /*noise=*/50 + seed};
  test::NamedSetting setting;
  setting.params.kind = kind;
  setting.params.method = &row;
  setting.params.seed = seed;
  setting.params.max_tokens = 9;
  setting.params.beam_width = kind == sampling::DecodingKind::kMultinomial ? 1 : 1 + seed % 4;
  setting.params.num_hypotheses = setting.params.beam_width;
  setting.draft_width = row.form == DraftForm::kPath ? 1 : 2 * setting.params.beam_width;
  setting.draft_depth = 3;
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  setting.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
  return setting;
}

using Check = std::function<void(const MethodRow&, test::NamedSetting)>;
void ForEveryService(int vocab, int seeds, const Check& check) {
  for (sampling::DecodingKind kind : kKinds) {
    for (const MethodRow* row : test::MethodsThatServe(kind)) {
      for (int seed = 0; seed < seeds; ++seed) {
        SCOPED_TRACE(testing::Message()
                     << row->name << " " << sampling::DecodingKindName(kind) << " seed " << seed);
        check(*row, Setting(*row, kind, vocab, seed));
      }
    }
  }
}

void ExpectSameText(const test::NamedRun& a, const test::NamedRun& b) {
  EXPECT_EQ(a.layers, b.layers);
  ASSERT_EQ(a.result.size(), b.result.size());
  for (size_t i = 0; i < a.result.size(); ++i) {
    EXPECT_EQ(a.result[i].tokens, b.result[i].tokens);
    EXPECT_NEAR(a.result[i].joint_log_probability, b.result[i].joint_log_probability, 1e-9);
  }
}

// An exact search that returns fewer hypotheses ends sooner, with the first of those that it would
// return in any case.
TEST(DecodeInvariants, FewerHypothesesAreTheFirstOfAll) {
  int sooner = 0;
  ForEveryService(/*vocab=*/12, /*seeds=*/12, [&](const MethodRow&, test::NamedSetting all) {
    if (all.params.kind == sampling::DecodingKind::kMultinomial) return;
    all.params.beam_width = all.params.num_hypotheses = 4;
    all.params.stop_ids = {4, 7};
    all.params.stop_when_full = false;
    all.params.length_penalty = 0.5 * (all.params.seed % 3);
    const test::NamedRun every = test::RunNamed(all);
    for (int n = 1; n < 4; ++n) {
      all.params.num_hypotheses = n;
      const test::NamedRun some = test::RunNamed(all);
      ASSERT_EQ(some.result.size(), std::min<size_t>(n, every.result.size()));
      for (size_t i = 0; i < some.result.size(); ++i) {
        EXPECT_EQ(some.result[i].tokens, every.result[i].tokens);
        EXPECT_EQ(some.result[i].joint_log_probability, every.result[i].joint_log_probability);
        EXPECT_EQ(some.result[i].finished, every.result[i].finished);
      }
      EXPECT_LE(some.layers, every.layers);
      sooner += some.layers < every.layers ? 1 : 0;
    }
  });
  EXPECT_GT(sooner, 100);
}

// With a top-k that keeps everything, rows are lists. Without top-k, rows stay whole.
TEST(DecodeInvariants, WholeAndListedRowsDecideAlike) {
  ForEveryService(/*vocab=*/40, /*seeds=*/8, [](const MethodRow&, test::NamedSetting whole) {
    if (whole.params.kind == sampling::DecodingKind::kBeamSearch) return;  // takes no top-k
    whole.params.stop_ids = {4};
    test::NamedSetting listed = whole;
    listed.params.sampling.top_k = 40;
    ExpectSameText(test::RunNamed(whole), test::RunNamed(listed));
  });
  ForEveryService(/*vocab=*/12, /*seeds=*/8, [](const MethodRow& row, test::NamedSetting whole) {
    if (!row.joint_sampling) return;
    whole.params.sampling.mode = sampling::SamplingScope::kJoint;
    whole.params.sampling.temperature = 0.9;
    test::NamedSetting listed = whole;
    listed.params.sampling.top_k = 12 * 8;  // enough for all live and ended beams
    ExpectSameText(test::RunNamed(whole), test::RunNamed(listed));
    whole.params.sampling.mode = listed.params.sampling.mode = sampling::SamplingScope::kRowCut;
    ExpectSameText(test::RunNamed(whole), test::RunNamed(listed));
  });
}

// This list of methods is kept by hand. A new method must be added, and a lost one is noticed.
// True: a draft equal to the target is always kept whole. False: the method drafts by score but
// draws its outputs, or it drafts fewer nodes than a layer's outputs need, or none.
const std::map<std::string, bool> kKeepsEqualDrafts = {{"gumbel_coupling", true},
                                                       {"gumbel_top_k", false},
                                                       {"speculative_beam_search", true},
                                                       {"joint_gumbel_coupling", true},
                                                       {"dsbd", true},
                                                       {"dsbd_renormalise", true},
                                                       {"dsbd_single_kv", true},
                                                       {"dsbd_wor", true},
                                                       {"beam_recursive_rejection", true},
                                                       {"mjsd", true},
                                                       {"bild", true},
                                                       {"mjgd", false},
                                                       {"rejection", true},
                                                       {"block_verification", true},
                                                       {"recursive_rejection", true},
                                                       {"recursive_rejection_wor", true},
                                                       {"sample_and_check", false},
                                                       {"k_seq", true},
                                                       {"spectr", true},
                                                       {"greedy_multi_draft", false},
                                                       {"spechub", false},
                                                       {"luce_ot", true}};

TEST(DecodeInvariants, TheTableHasTheMethodsOfTheListAndNoOther) {
  std::set<std::string> listed, rows;
  for (const auto& [name, keeps] : kKeepsEqualDrafts) listed.insert(name);
  for (const MethodRow& row : Methods()) {
    EXPECT_TRUE(rows.insert(std::string(row.name)).second) << row.name << " has two rows";
  }
  EXPECT_EQ(rows, listed);
}

// W = 1 for the methods that use distinct drafts for independent outputs: the second output of a
// parent has another distribution than the second draft.
TEST(DecodeInvariants, EqualDraftsAreKeptWhole) {
  std::set<std::string> seen;
  ForEveryService(/*vocab=*/7, /*seeds=*/12, [&](const MethodRow& row, test::NamedSetting setting) {
    const std::string name(row.name);
    if (!kKeepsEqualDrafts.at(name)) return;
    seen.insert(name);
    if (setting.params.kind == sampling::DecodingKind::kBeamSampling &&
        (name == "dsbd_wor" || name == "beam_recursive_rejection")) {
      setting.params.beam_width = setting.params.num_hypotheses = 1;
    }
    setting.params.fallback_threshold = 0;
    setting.params.rollback_threshold = 1e9;
    setting.params.mjsd_threshold = 0.5;
    setting.params.max_tokens = 12;
    setting.draft_width = setting.params.beam_width;
    setting.draft = setting.target;
    EXPECT_THAT(test::RunNamed(setting).layers, testing::ElementsAre(4, 4, 4));
  });
  for (const auto& [name, keeps] : kKeepsEqualDrafts) EXPECT_EQ(seen.count(name), keeps) << name;
}

// The target keeps only its two likeliest tokens. The draft has only the others.
TEST(DecodeInvariants, DisjointDraftsDecideOneLayerAPass) {
  ForEveryService(/*vocab=*/9, /*seeds=*/12, [](const MethodRow& row, test::NamedSetting setting) {
    if (!row.lossless) return;
    const test::LogProbsOf target = setting.target;
    const auto split = [target](uint64_t hash, bool likely) {
      std::vector<double> row = target(hash);
      sampling::SamplingParams two;
      two.top_k = 2;
      const sampling::Distribution top = sampling::ProcessRow(absl::Span<const double>(row), two);
      double mass = 0;
      for (int v = 0; v < row.size(); ++v) {
        if ((FindToken(top, v) >= 0) != likely) row[v] = kNothing;
        mass += sampling::Exp(row[v]);
      }
      for (double& log_prob : row) log_prob -= sampling::Log(mass);
      return row;
    };
    setting.target = [split](uint64_t hash) { return split(hash, true); };
    setting.draft = [split](uint64_t hash) { return split(hash, false); };
    EXPECT_THAT(test::RunNamed(setting).layers, testing::Each(1));
  });
}

// Rows in which most logits are -inf, rows with one token and rows with none (one-hot on token 0),
// in f64 and in f32.
std::vector<double> Holed(std::vector<double> row, uint64_t hash) {
  const int keep = static_cast<int>(hash % 4);  // 0: nothing is left
  int kept = 0;
  for (int v = 0; v < row.size(); ++v) {
    const bool stays =
        kept < keep && (sampling::Finalize(hash + v) % 3 == 0 || row.size() - v <= keep - kept);
    if (stays) {
      ++kept;
    } else {
      row[v] = kNothing;
    }
  }
  return row;
}

TEST(DecodeInvariants, TokensWithoutMassAreNeverEmitted) {
  int rows_of_nothing = 0;
  const sampling::SamplingScope modes[] = {
      sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw,
      sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut};
  ForEveryService(/*vocab=*/9, /*seeds=*/16, [&](const MethodRow& row, test::NamedSetting setting) {
    const test::LogProbsOf target = setting.target;
    setting.target = [target](uint64_t hash) { return Holed(target(hash), hash); };
    setting.logits_in_f32 = setting.params.seed % 2 == 0;
    if (setting.params.kind != sampling::DecodingKind::kBeamSearch)
      setting.params.sampling.mode = modes[setting.params.seed / 2 % (row.joint_sampling ? 4 : 2)];
    for (const Hypothesis& hypothesis : test::RunNamed(setting).result) {
      ASSERT_TRUE(std::isfinite(hypothesis.joint_log_probability));
      ASSERT_LE(hypothesis.joint_log_probability, 0);
      uint64_t hash = sampling::kRootHash;
      for (TokenId token : hypothesis.tokens) {
        const std::vector<double> row = setting.target(hash);
        const bool nothing = *std::max_element(row.begin(), row.end()) == kNothing;
        rows_of_nothing += nothing;
        EXPECT_TRUE(nothing ? token == 0 : row[token] > kNothing);
        hash = sampling::ExtendHash(hash, token);
      }
    }
  });
  EXPECT_GT(rows_of_nothing, 100);
}

// 11.7: ls is the sum in path order, in f64, of exactly what the rows give, bit for bit. The score
// is ls / len^alpha. exp(-ls / len) is the perplexity.
TEST(DecodeInvariants, ScoresAreSumsInPathOrder) {
  ForEveryService(/*vocab=*/9, /*seeds=*/12, [](const MethodRow&, test::NamedSetting setting) {
    setting.params.stop_ids = {2};
    setting.params.length_penalty = 1;
    if (setting.params.kind != sampling::DecodingKind::kBeamSearch) {
      setting.params.sampling.mode = setting.params.seed % 2 == 0
                                         ? sampling::SamplingScope::kRow
                                         : sampling::SamplingScope::kRowRaw;
      setting.params.sampling.temperature = 0.8;
      setting.params.sampling.top_k = setting.params.seed % 3 == 0 ? 5 : 0;
    }
    for (const Hypothesis& hypothesis : test::RunNamed(setting).result) {
      double sum = 0, likelihood = 1;
      uint64_t hash = sampling::kRootHash;
      for (int i = 0; i < hypothesis.tokens.size(); ++i) {
        test::FunctionRows rows(setting.target, {hash}, DraftForest::Empty(1));
        const sampling::TargetRow row = sampling::ReadTargetRow(&rows, 0, setting.params, i);
        const int at = FindToken(row.row, hypothesis.tokens[i]);
        ASSERT_GE(at, 0);
        sum += row.score_log_probs[at];
        likelihood *= std::exp(row.score_log_probs[at]);
        hash = sampling::ExtendHash(hash, hypothesis.tokens[i]);
      }
      const double length = static_cast<double>(hypothesis.tokens.size());
      EXPECT_EQ(hypothesis.joint_log_probability, sum);
      EXPECT_NEAR(hypothesis.score, sum / length, 1e-15 * (1 - sum));
      EXPECT_NEAR(std::exp(-hypothesis.score), std::pow(likelihood, -1 / length),
                  1e-12 * std::exp(-hypothesis.score));
    }
  });
}

}  // namespace
}  // namespace coppice::decoding
