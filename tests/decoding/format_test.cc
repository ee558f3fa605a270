// Formats (docs/algorithms.md 1): a token that the format does not allow after a path has
// probability 0, the rest is renormalised. A decode with a format is a decode without it on another
// model, whose rows have those tokens at -inf already. So every distribution of docs/algorithms.md
// 3 must hold for those rows: with drafts whose node knows the format, and with drafts whose node
// does not. All choices of the production drafter and decoder are enumerated.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "decoding/layer/dsbd_wor.h"
#include "lab/exact/layered_distribution.h"
#include "lab/exact/tree_distribution.h"
#include "tests/decoding/format_setting.h"

namespace coppice::decoding {
namespace {

using namespace format_setting;  // NOLINT: the whole file is about it

constexpr double kExact = 1e-12;
constexpr double kBiased = 1e-4;  // the least bias that a wrong variant must have

std::vector<test::TreeMethod> TreeAndPathMethods() {
  std::vector<test::TreeMethod> methods = test::TreeMethods();
  methods.push_back({"rejection", VerifyRrsIid, ChildSampling::kIid});
  methods.push_back({"block_verification", nullptr, ChildSampling::kIid});
  return methods;
}
bool IsPath(const test::TreeMethod& method) {
  return method.name == "rejection" || method.name == "block_verification";
}

struct TreeCase {
  test::TreeSetting setting, closed;  // closed: on the model with the format, without a format
  Models models;
};

TreeCase Tree(const test::TreeMethod& method, const grammar::Part& whole, bool draft_knows,
              const std::string& tree, const sampling::SamplingParams& sampling = {}) {
  TreeCase out;
  test::TreeSetting& setting = out.setting;
  setting.params.sampling = sampling;
  setting.params.draft_tree = tree;
  setting.params.max_tokens = 3;
  setting.params.stop_ids = {kStop};
  setting.rule = method.rule;
  setting.distribution = setting.relied_on = method.distribution;
  out.models = FormattedModels(whole, 5, draft_knows, &setting.params);
  setting.target = out.models.target;
  setting.draft = out.models.draft;
  out.closed = setting;
  out.closed.params = test::WithoutFormat(setting.params);
  out.closed.target = out.models.closed;
  return out;
}

TEST(FormatEnumeration, EveryRuleOnTreesAndPaths) {
  int64_t most = 0;
  for (const test::TreeMethod& method : TreeAndPathMethods()) {
    for (const NamedLanguage& language : Languages()) {
      for (const bool draft_knows : {true, false}) {
        SCOPED_TRACE(method.name + " " + language.name + (draft_knows ? " known" : ""));
        const TreeCase tree =
            Tree(method, language.whole, draft_knows, IsPath(method) ? "chain" : "2-1");
        int64_t runs = 0;
        EXPECT_LE(test::TotalVariation(test::TreeDistribution(tree.setting, nullptr, &runs),
                                       test::MultinomialDistribution(tree.closed)),
                  kExact);
        most = std::max(most, runs);
      }
    }
  }
  EXPECT_GT(most, 1000);
}

// Cut rows are lists.
TEST(FormatEnumeration, EveryRuleWithACutAndABias) {
  sampling::SamplingParams sampling;
  sampling.temperature = 0.7;
  sampling.top_k = 2;
  sampling.logit_bias = {{1, 0.8}};
  for (const test::TreeMethod& method : TreeAndPathMethods()) {
    for (const NamedLanguage& language : Languages()) {
      SCOPED_TRACE(method.name + " " + language.name);
      const TreeCase tree =
          Tree(method, language.whole, true, IsPath(method) ? "chain" : "2-1", sampling);
      EXPECT_LE(test::TotalVariation(test::TreeDistribution(tree.setting),
                                     test::MultinomialDistribution(tree.closed)),
                kExact);
    }
  }
}

// The format changes the distribution, so that these tests see it.
TEST(FormatEnumeration, TheDistributionIsAnother) {
  for (const NamedLanguage& language : Languages()) {
    const TreeCase tree =
        Tree({"rejection", VerifyRrsIid, ChildSampling::kIid}, language.whole, true, "chain");
    test::TreeSetting free = tree.closed;
    free.target = tree.setting.target;
    const double change = test::TotalVariation(test::MultinomialDistribution(free),
                                               test::MultinomialDistribution(tree.closed));
    EXPECT_GT(change, 0.02) << language.name;
  }
}

test::LayeredSetting Layered(const char* method, sampling::DecodingKind kind, int width,
                             int layers) {
  test::LayeredSetting setting;
  setting.params.kind = kind;
  setting.params.method = FindMethod(method);
  setting.params.beam_width = width;
  setting.params.max_tokens = layers;
  setting.params.stop_ids = {kStop};
  setting.draft_width = 2;
  setting.draft_depth = layers - 1;
  return setting;
}

// Languages by name; all if there is none.
void ExpectLayersExact(test::LayeredSetting setting, const std::vector<std::string>& names = {}) {
  for (const NamedLanguage& language : Languages()) {
    if (!names.empty() && std::count(names.begin(), names.end(), language.name) == 0) continue;
    for (const bool draft_knows : {true, false}) {
      SCOPED_TRACE(language.name + (draft_knows ? " known" : ""));
      const Models models = FormattedModels(language.whole, 8, draft_knows, &setting.params);
      setting.target = models.target;
      setting.draft = models.draft;
      test::LayeredSetting closed = setting;
      closed.target = models.closed;
      closed.params = test::WithoutFormat(setting.params);
      const bool with_replacement = setting.params.kind == sampling::DecodingKind::kBeamSampling;
      EXPECT_LT(
          test::LargestDifference(test::LayeredDistribution(setting),
                                  test::ClosedFixedWidthDistribution(closed, with_replacement)),
          kExact);
    }
  }
}

TEST(FormatEnumeration, JointLayersOfDsbd) {
  for (const RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
    test::LayeredSetting setting = Layered("dsbd", sampling::DecodingKind::kBeamSampling, 2, 2);
    setting.removed = rule;
    ExpectLayersExact(setting);
    setting.params.refill = false;
    ExpectLayersExact(setting, {"ab|aab|b", "a*b?"});
    // Two drafted layers are verified in one round: the second below tokens that are not allowed.
    setting = Layered("dsbd", sampling::DecodingKind::kBeamSampling, 1, 3);
    setting.removed = rule;
    ExpectLayersExact(setting);
  }
}

TEST(FormatEnumeration, JointLayersWithReuse) {
  for (const sampling::DecodingKind kind :
       {sampling::DecodingKind::kBeamSampling,
        sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
    test::LayeredSetting setting = Layered("dsbd_wor", kind, 2, 2);
    setting.rule = MakeDsbdWorRule;
    setting.drafts = DrawKind::kDistinct;
    ExpectLayersExact(setting);
  }
}

// One or two tokens are allowed in the first layer, and there are three beams.
TEST(FormatEnumeration, FewerTokensThanBeams) {
  const std::vector<std::string> few = {"(ab)+", "b(a|b)*a"};
  test::LayeredSetting dsbd = Layered("dsbd", sampling::DecodingKind::kBeamSampling, 3, 2);
  ExpectLayersExact(dsbd, few);
  test::LayeredSetting setting =
      Layered("dsbd_wor", sampling::DecodingKind::kBeamSamplingWithoutReplacement, 3, 2);
  setting.rule = MakeDsbdWorRule;
  setting.drafts = DrawKind::kDistinct;
  ExpectLayersExact(setting, few);
}

// ---- wrong variants, which must be seen ----

using WrongRow =
    std::function<std::vector<double>(std::vector<double> row, std::vector<TokenId> path)>;

// The largest bias over the languages of a decode whose target rows are wrong.
double LargestBias(const std::function<WrongRow(const Models&)>& wrong) {
  double largest = 0;
  for (const NamedLanguage& language : Languages()) {
    const TreeCase tree =
        Tree({"rejection", VerifyRrsIid, ChildSampling::kIid}, language.whole, true, "chain");
    test::TreeSetting setting = tree.setting;
    setting.params = test::WithoutFormat(tree.setting.params);
    setting.target = [target = tree.setting.target, book = tree.models.book,
                      row = wrong(tree.models)](uint64_t hash) {
      return row(target(hash), book->Tokens(hash));
    };
    largest = std::max(largest, test::TotalVariation(test::TreeDistribution(setting),
                                                     test::MultinomialDistribution(tree.closed)));
  }
  return largest;
}

TEST(FormatNegativeControl, TheRightRowsHaveNoBias) {
  EXPECT_LE(LargestBias([](const Models& models) -> WrongRow {
              return [=](std::vector<double> row, const std::vector<TokenId>& path) {
                return models.format->Masked(std::move(row), path);
              };
            }),
            kExact);
}

TEST(FormatNegativeControl, WhatTheParentAllows) {
  EXPECT_GT(LargestBias([](const Models& models) -> WrongRow {
              return [=](std::vector<double> row, std::vector<TokenId> path) {
                if (!path.empty()) path.pop_back();
                return models.format->Masked(std::move(row), path);
              };
            }),
            kBiased);
}

TEST(FormatNegativeControl, WhatThePromptAllows) {
  EXPECT_GT(LargestBias([](const Models& models) -> WrongRow {
              return [=](std::vector<double> row, const std::vector<TokenId>&) {
                return models.format->Masked(std::move(row), {});
              };
            }),
            kBiased);
}

TEST(FormatNegativeControl, TheFirstLayerIsFree) {
  EXPECT_GT(LargestBias([](const Models& models) -> WrongRow {
              return [=](std::vector<double> row, const std::vector<TokenId>& path) {
                return path.empty() ? row : models.format->Masked(std::move(row), path);
              };
            }),
            kBiased);
}

TEST(FormatNegativeControl, StopIdsAreAlwaysAllowed) {
  EXPECT_GT(LargestBias([](const Models& models) -> WrongRow {
              return [=](const std::vector<double>& row, const std::vector<TokenId>& path) {
                std::vector<double> masked = models.format->Masked(row, path);
                masked[kStop] = row[kStop];
                return masked;
              };
            }),
            kBiased);
}

// A draft node whose proposals are not those that its children were drawn from.
TEST(FormatNegativeControl, ProposalsWithoutTheFormatOfTheirDrafts) {
  int seen = 0;
  for (const test::TreeMethod& method : test::TreeMethods()) {
    if (method.distribution != ChildSampling::kIid &&
        method.distribution != ChildSampling::kWithoutReplacement)
      continue;
    double bias = 0;
    for (const NamedLanguage& language : Languages()) {
      TreeCase tree = Tree(method, language.whole, true, "2-1");
      const test::HashLm lm{kVocab, 5, 3, 36};
      tree.setting.tamper = [lm](DraftForest* forest) {
        for (Proposal& proposal : forest->proposals) {
          if (proposal.place.is_root())
            proposal.row = test::DenseDistribution(lm.DraftLogProbs(sampling::kRootHash));
        }
      };
      bias = std::max(bias, test::TotalVariation(test::TreeDistribution(tree.setting),
                                                 test::MultinomialDistribution(tree.closed)));
    }
    EXPECT_GT(bias, kBiased) << method.name;
    ++seen;
  }
  EXPECT_GE(seen, 4);
}

}  // namespace
}  // namespace coppice::decoding
