// tests/decoding/README.md 1 and 5 for docs/algorithms.md 4. Whole decodes by every single-sequence
// verifier follow the product of the target's rows to 1e-12, over trees, consecutive rounds and
// ends of sequence. All choices of the production drafter and decoder are enumerated. Wrong
// variants must not follow it.
#include "lab/exact/tree_distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "decoding/tree/greedy_multi_draft.h"
#include "decoding/tree/k_seq.h"
#include "decoding/tree/luce_ot.h"

namespace coppice::decoding {
namespace {

constexpr double kExact = 1e-12;
constexpr double kBiased = 1e-4;  // the least bias that a wrong variant must have

test::TreeSetting Setting(const test::TreeMethod& method, const std::string& tree, int vocab,
                          uint64_t salt) {
  const test::HashLm lm{vocab, salt, /*power=*/3, /*noise=*/salt + 31};
  test::TreeSetting setting;
  setting.params.draft_tree = tree;
  setting.rule = method.rule;
  setting.distribution = setting.relied_on = method.distribution;
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  setting.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
  return setting;
}

test::TreeSetting Path(NodeRule rule, int vocab, int depth, uint64_t salt) {
  test::TreeSetting setting = Setting({"path", rule, ChildSampling::kIid}, "chain", vocab, salt);
  setting.draft_depth = depth;
  return setting;
}

void ExpectExact(const test::TreeSetting& setting) {
  int64_t runs = 0;
  const test::ExactDistribution distribution = test::TreeDistribution(setting, nullptr, &runs);
  const test::ExactDistribution target = test::MultinomialDistribution(setting);
  EXPECT_LE(test::TotalVariation(distribution, target), kExact) << runs << " runs";
  EXPECT_EQ(distribution.size(), target.size());
  EXPECT_GE(runs, static_cast<int64_t>(target.size()));
}

// With max_tokens = 3, a second and a third round decide what the first leaves open.
TEST(TreeDistribution, EveryRuleOnATreeOverConsecutiveRounds) {
  for (const test::TreeMethod& method : test::TreeMethods()) {
    for (const char* tree : {"2-1", "2-2"}) {
      SCOPED_TRACE(std::string(method.name) + " " + tree);
      test::TreeSetting setting = Setting(method, tree, 2, 5);
      setting.params.max_tokens = 3;
      ExpectExact(setting);
    }
  }
}

// The rows of a head on hidden states: others below a root than at one.
TEST(TreeDistribution, EveryRuleWithRowsThatDifferBelowTheRoot) {
  const test::HashLm own{2, 77, /*power=*/3, /*noise=*/0};
  for (const test::TreeMethod& method : test::TreeMethods()) {
    SCOPED_TRACE(method.name);
    test::TreeSetting setting = Setting(method, "2-1", 2, 5);
    setting.draft_below = [own](uint64_t hash) { return own.TargetLogProbs(hash); };
    setting.params.max_tokens = 3;
    ExpectExact(setting);
  }
  test::TreeSetting block = Path(nullptr, 2, 2, 5);  // block verification
  block.draft_below = [own](uint64_t hash) { return own.TargetLogProbs(hash); };
  block.params.max_tokens = 3;
  ExpectExact(block);
}

TEST(TreeDistribution, EveryRuleOnThreeTokens) {
  for (const test::TreeMethod& method : test::TreeMethods()) {
    const bool pair = method.distribution == ChildSampling::kSpecHub;
    for (const char* tree : {"2", "3", "1-2"}) {
      if (pair && std::string(tree) == "3") continue;
      SCOPED_TRACE(std::string(method.name) + " " + tree);
      test::TreeSetting setting = Setting(method, tree, 3, 8);
      setting.params.max_tokens = std::string(tree) == "1-2" ? 3 : 2;
      ExpectExact(setting);
    }
  }
}

// A stop id is drafted like any other token, ends the sequence and has no children.
TEST(TreeDistribution, EndOfSequenceInsideTheTree) {
  for (const test::TreeMethod& method : test::TreeMethods()) {
    for (int min_tokens : {0, 1}) {
      SCOPED_TRACE(std::string(method.name) + " min_tokens " + std::to_string(min_tokens));
      test::TreeSetting setting = Setting(method, "2-2", 2, 11);
      setting.params.max_tokens = 3;
      setting.params.stop_ids = {1};
      setting.params.min_tokens = min_tokens;
      ExpectExact(setting);
    }
  }
}

// Draft and target processed differently: any proposal is admissible.
TEST(TreeDistribution, ProcessedTargetAndForeignDraft) {
  for (const test::TreeMethod& method : test::TreeMethods()) {
    SCOPED_TRACE(method.name);
    test::TreeSetting setting = Setting(method, "2-1", 3, 21);
    setting.params.max_tokens = 2;
    setting.params.sampling.temperature = 0.7;
    setting.params.sampling.top_k = 2;
    const test::HashLm other{3, 99, 4, 0};
    setting.draft = [other](uint64_t hash) { return other.TargetLogProbs(hash); };
    ExpectExact(setting);
  }
}

// As of a draft with a draft vocabulary. "3" asks for more distinct tokens than the draft has.
TEST(TreeDistribution, DraftsThatLackTokens) {
  for (const test::TreeMethod& method : test::TreeMethods()) {
    for (const char* tree : {"2-1", "3"}) {
      if (method.distribution == ChildSampling::kSpecHub && std::string(tree) == "3") continue;
      SCOPED_TRACE(std::string(method.name) + " " + tree);
      test::TreeSetting setting = Setting(method, tree, 3, 25);
      setting.params.max_tokens = 2;
      const test::LogProbsOf whole = setting.draft;
      setting.draft = [whole](uint64_t hash) {
        std::vector<double> row = whole(hash);
        const double kept = sampling::Log(1 - sampling::Exp(row[1]));
        row[1] = -std::numeric_limits<double>::infinity();
        for (double& log_prob : row) log_prob -= kept;
        return row;
      };
      ExpectExact(setting);
    }
  }
}

TEST(TreeDistribution, PathsAndBlocks) {
  for (NodeRule rule : {NodeRule{VerifyRrsIid}, NodeRule{nullptr}}) {
    SCOPED_TRACE(rule == nullptr ? "block_verification" : "rejection");
    for (uint64_t salt : {1, 2, 3}) {
      test::TreeSetting two = Path(rule, 2, 3, salt);
      two.params.max_tokens = 4;
      ExpectExact(two);
      test::TreeSetting three = Path(rule, 3, 2, salt);
      three.params.max_tokens = 3;
      ExpectExact(three);
      three.params.stop_ids = {2};
      ExpectExact(three);
    }
  }
}

// Sequences that split and join: a token that several of them draw continues all of them.
TEST(TreeDistribution, SequencesOfSpecTr) {
  for (NodeRule rule : {NodeRule{VerifyKSeq}, NodeRule{VerifyRrsIid}}) {
    test::TreeSetting setting = Setting({"spectr", rule, ChildSampling::kIid}, "3-1-1", 2, 17);
    setting.draft_depth = 2;
    setting.params.max_tokens = 3;
    ExpectExact(setting);
  }
}

TEST(TreeDistribution, BlocksKeepMoreThanTokens) {
  for (uint64_t salt : {1, 2, 3}) {
    double tokens[2] = {0, 0};
    for (int block : {0, 1}) {
      test::TreeSetting setting = Path(block ? nullptr : VerifyRrsIid, 2, 3, salt);
      for (const auto& [length, mass] : test::RoundLengthDistribution(setting))
        tokens[block] += length[0] * mass;
    }
    EXPECT_GT(tokens[1], tokens[0] + 1e-3);
  }
}

// ---- What must not pass ----

// The largest bias over some models.
double Bias(test::TreeSetting setting, const test::WrongChoices& wrong = nullptr) {
  double largest = 0;
  for (uint64_t salt : {8, 9, 10, 11}) {
    const test::HashLm lm{/*vocab_size=*/3, salt, /*power=*/3, /*noise=*/salt + 31};
    setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
    setting.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
    largest = std::max(largest, test::TotalVariation(test::TreeDistribution(setting, wrong),
                                                     test::MultinomialDistribution(setting)));
  }
  return largest;
}

test::TreeSetting Wrong(NodeRule rule, ChildSampling drawn, ChildSampling relied_on,
                        const char* tree = "2") {
  test::TreeSetting setting = Setting({"wrong", rule, drawn}, tree, 3, 8);
  setting.relied_on = relied_on;
  setting.params.max_tokens = 2;
  return setting;
}

test::TreeSetting WrongBlock() {
  test::TreeSetting setting = Path(nullptr, 3, 2, 1);
  setting.params.max_tokens = 3;
  return setting;
}

// Reorders, removes or repeats the draws of every layer.
std::function<void(DraftForest*)> Redrawn(
    const std::function<std::vector<NodeId>(const DraftForest&, std::vector<NodeId>)>& change) {
  return [change](DraftForest* forest) {
    std::vector<NodeId> draws;
    std::vector<int32_t> begin = {0};
    for (int layer = 0; layer < forest->depth(); ++layer) {
      const std::vector<NodeId> old(forest->draws.begin() + forest->draws_begin[layer],
                                    forest->draws.begin() + forest->draws_begin[layer + 1]);
      for (const NodeId node : change(*forest, old)) draws.push_back(node);
      begin.push_back(static_cast<int32_t>(draws.size()));
    }
    forest->draws = draws;
    forest->draws_begin = begin;
  };
}

double LogQ(const DraftForest& forest, NodeId draw) {
  const int32_t node = Index(draw);
  for (const Proposal& proposal : forest.proposals) {
    if (proposal.place == forest.parent[node])
      return proposal.row.log_probs[FindToken(proposal.row, forest.token[node])];
  }
  return 0;
}

std::vector<NodeId> SortedByQ(const DraftForest& forest, std::vector<NodeId> draws) {
  std::stable_sort(draws.begin(), draws.end(),
                   [&](NodeId a, NodeId b) { return LogQ(forest, a) > LogQ(forest, b); });
  return draws;
}

std::vector<NodeId> WithoutCopies(const DraftForest&, std::vector<NodeId> draws) {
  std::vector<NodeId> once;
  for (const NodeId node : draws) {
    if (std::find(once.begin(), once.end(), node) == once.end()) once.push_back(node);
  }
  return once;
}

// Decides whether there is another child after looking at that child, which is wrong.
std::vector<NodeId> WithoutUnlikely(const DraftForest& forest, std::vector<NodeId> draws) {
  std::vector<NodeId> kept;
  for (const NodeId node : draws) {
    if (LogQ(forest, node) > sampling::Log(0.3)) kept.push_back(node);
  }
  return kept;
}

TEST(TreeDistributionControl, TheRuleMustMatchTheDistributionOfTheDrafts) {
  EXPECT_GT(Bias(Wrong(VerifyRrsIid, ChildSampling::kWithoutReplacement, ChildSampling::kIid)),
            kBiased);
  EXPECT_GT(Bias(Wrong(VerifyKSeq, ChildSampling::kWithoutReplacement, ChildSampling::kIid)),
            kBiased);
  EXPECT_GT(Bias(Wrong(VerifyLuceOt, ChildSampling::kWithoutReplacement, ChildSampling::kIid)),
            kBiased);
  EXPECT_GT(Bias(Wrong(VerifyRrsWithoutReplacement, ChildSampling::kIid, ChildSampling::kIid)),
            kBiased);
  EXPECT_GT(Bias(Wrong(VerifyRrsWithoutReplacement, ChildSampling::kGreedy,
                       ChildSampling::kWithoutReplacement, "2")),
            kBiased);
  EXPECT_GT(Bias(Wrong(VerifyRrsIid, ChildSampling::kSpecHub, ChildSampling::kIid, "2")), kBiased);
}

TEST(TreeDistributionControl, OrderAndCopiesOfTheDraftsCount) {
  test::TreeSetting iid = Wrong(VerifyRrsIid, ChildSampling::kIid, ChildSampling::kIid);
  iid.tamper = Redrawn(SortedByQ);
  EXPECT_GT(Bias(iid), kBiased);
  iid.tamper = Redrawn(WithoutCopies);
  EXPECT_GT(Bias(iid), kBiased);
  iid.tamper = Redrawn(WithoutUnlikely);
  EXPECT_GT(Bias(iid), kBiased);
  test::TreeSetting wor = Wrong(VerifyRrsWithoutReplacement, ChildSampling::kWithoutReplacement,
                                ChildSampling::kWithoutReplacement, "2");
  wor.tamper = Redrawn(SortedByQ);
  EXPECT_GT(Bias(wor), kBiased);
  test::TreeSetting k_seq = Wrong(VerifyKSeq, ChildSampling::kIid, ChildSampling::kIid);
  k_seq.tamper = Redrawn(WithoutCopies);
  EXPECT_GT(Bias(k_seq), kBiased);
}

TEST(TreeDistributionControl, AnInvertedRatioIsSeen) {
  for (const test::TreeMethod& method : test::TreeMethods()) {
    if (method.distribution == ChildSampling::kMostLikely) continue;  // no coin
    SCOPED_TRACE(method.name);
    test::TreeSetting setting = Setting(method, "2", 3, 8);
    setting.params.max_tokens = 2;
    EXPECT_GT(
        Bias(setting,
             [](ChoiceSource* choices) { return std::make_unique<test::InvertedRatio>(choices); }),
        kBiased);
  }
}

// After the last draft, draws from p instead of the residual.
class NoResidual : public test::ForwardedChoices {
 public:
  NoResidual(ChoiceSource* choices, test::LogProbsOf target)
      : test::ForwardedChoices(choices), target_(std::move(target)) {}
  Draw Choose(sampling::Domain domain, uint32_t slot,
              const LayerDistribution& distribution) override {
    if (domain != sampling::Domain::kResidual) return choices_->Choose(domain, slot, distribution);
    const sampling::Distribution row = test::DenseDistribution(target_(distribution.rows[0].hash));
    LayerDistribution whole;
    whole.rows.resize(1);
    whole.rows[0].hash = distribution.rows[0].hash;
    whole.rows[0].sparse = &row;
    return choices_->Choose(domain, slot, whole);
  }

 private:
  test::LogProbsOf target_;
};

TEST(TreeDistributionControl, ARecoveredTokenComesFromTheResidual) {
  for (const test::TreeMethod& method : test::TreeMethods()) {
    if (method.distribution == ChildSampling::kMostLikely) continue;
    SCOPED_TRACE(method.name);
    test::TreeSetting setting = Setting(method, "2", 3, 9);
    setting.params.max_tokens = 2;
    const auto wrong = [&](ChoiceSource* choices) {
      return std::make_unique<NoResidual>(choices, setting.target);
    };
    EXPECT_GT(test::TotalVariation(test::TreeDistribution(setting, wrong),
                                   test::MultinomialDistribution(setting)),
              kBiased);
  }
}

// 4.3 as printed (E21), with the factor on the wrong term: (p - min(q, p / rho)) c / (1 - beta)^n,
// negative parts cut.
NodeVerdict PrintedKSeq(const NodeInput& input, ChoiceSource* choices) {
  const int n = static_cast<int>(input.drafts.size());
  const double rho = KSeqRho(*input.p, *input.q, n);
  NodeTrial trial(input, *input.q, choices, rho);
  for (int j = 0; j < n; ++j) {
    if (trial.Accepts(j)) return trial.Accepted(j);
  }
  sampling::Distribution printed;
  for (const EntryMass& entry : ListEntries(*input.p)) {
    const double p = sampling::Exp(entry.log_mass);
    const int at = FindToken(*input.q, entry.entry.token);
    const double q = at < 0 ? 0 : sampling::Exp(input.q->log_probs[at]);
    const double mass = p - std::min(q, p / rho);
    if (mass <= 0) continue;
    printed.tokens.push_back(entry.entry.token);
    printed.log_probs.push_back(sampling::Log(mass));
  }
  LayerDistribution distribution;
  distribution.rows.resize(1);
  distribution.rows[0].sparse = &printed;
  NodeVerdict verdict;
  verdict.token = choices->Choose(sampling::Domain::kResidual, 0, distribution).entry.token;
  return verdict;
}

// LOT with the proposal q of the drafts instead of s of the selected one.
NodeVerdict UnselectedLuce(const NodeInput& input, ChoiceSource* choices) {
  const std::vector<double> log_weights = {0.0, sampling::Log(3.0)};
  NodeTrial trial(input, *input.q, choices);
  const int j = choices->Select(0, log_weights).index;
  if (input.drafts[0] == input.drafts[1] ||
      trial.Accepts(input.drafts[0] < input.drafts[1] ? j : 1 - j))
    return trial.Accepted(input.drafts[0] < input.drafts[1] ? j : 1 - j);
  trial.Reject();
  return trial.DrawRest();
}

// Greedy, verified with q although the drafts were drawn from q'.
NodeVerdict GreedyAgainstQ(const NodeInput& input, ChoiceSource* choices) {
  NodeTrial trial(input, *input.q, choices);
  const int last = static_cast<int>(input.drafts.size()) - 1;
  if (trial.Accepts(last)) return trial.Accepted(last);
  trial.Reject();
  return trial.DrawRest();
}

TEST(TreeDistributionControl, WrongRulesAreSeen) {
  EXPECT_GT(Bias(Wrong(PrintedKSeq, ChildSampling::kIid, ChildSampling::kIid)), kBiased);
  EXPECT_GT(Bias(Wrong(UnselectedLuce, ChildSampling::kIid, ChildSampling::kIid, "2")), kBiased);
  EXPECT_GT(Bias(Wrong(GreedyAgainstQ, ChildSampling::kGreedy, ChildSampling::kGreedy, "2")),
            kBiased);
}

// Erratum E14: p = (1/2, 3/10, 1/5), q = (3/5, 3/10, 1/10). The draft is the argmax of q. If it is
// tested against the soft q, the output distribution is (5/6, 0, 1/6). Against a one-hot proposal
// it is p.
TEST(TreeDistributionControl, SoftRowOfAnArgmaxDraft) {
  const sampling::Distribution p{{0, 1, 2},
                                 {sampling::Log(0.5), sampling::Log(0.3), sampling::Log(0.2)}};
  const sampling::Distribution soft{{0, 1, 2},
                                    {sampling::Log(0.6), sampling::Log(0.3), sampling::Log(0.1)}};
  const sampling::Distribution one_hot{{0}, {0.0}};
  LayerDistribution distribution;
  distribution.rows.resize(1);
  distribution.rows[0].sparse = &p;
  const std::vector<TokenId> drafts = {0};
  std::map<TokenId, double> from_soft, from_one_hot;
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const TokenId token = VerifyRrsIid({&distribution, &soft, drafts}, choices).token;
    from_soft[token] += choices->probability();
  });
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const TokenId token = VerifyRrsIid({&distribution, &one_hot, drafts}, choices).token;
    from_one_hot[token] += choices->probability();
  });
  EXPECT_NEAR(from_soft[0], 5.0 / 6, kExact);
  EXPECT_NEAR(from_soft[1], 0, kExact);
  EXPECT_NEAR(from_soft[2], 1.0 / 6, kExact);
  EXPECT_NEAR(from_one_hot[0], 0.5, kExact);
  EXPECT_NEAR(from_one_hot[1], 0.3, kExact);
  EXPECT_NEAR(from_one_hot[2], 0.2, kExact);
}

// Block verification that accepts a path with h_i = p_i.
TEST(TreeDistributionControl, BlockCoinsAreNotThoseOfThePath) {
  class AlwaysShort : public test::ForwardedChoices {
   public:
    using test::ForwardedChoices::ForwardedChoices;
    Coin Accept(uint64_t hash, uint32_t slot, double a, double b) override {
      return choices_->Accept(hash, slot, a * a, b);
    }
  };
  EXPECT_GT(Bias(WrongBlock(),
                 [](ChoiceSource* choices) { return std::make_unique<AlwaysShort>(choices); }),
            kBiased);
}

}  // namespace
}  // namespace coppice::decoding
