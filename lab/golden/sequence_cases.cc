// Whole rounds of one sequence: docs/algorithms.md 4.1, 4.6 and 4.7. All choices of the production
// decoders and drafters are enumerated.
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lab/exact/tree_distribution.h"
#include "lab/golden/runners.h"
#include "sampling/deterministic_math.h"

namespace coppice::golden {
namespace {

std::vector<double> LogsOf(const std::vector<double>& probabilities) {
  std::vector<double> logs;
  for (double p : probabilities) logs.push_back(sampling::Log(p));
  return logs;
}

// rows[i] follows i tokens of the draft; p_bonus follows all of them.
struct DraftedPath {
  std::vector<TokenId> draft;
  std::vector<uint64_t> hash = {sampling::kRootHash};  // [gamma + 1]
  std::vector<sampling::Distribution> q;               // [gamma]
  std::map<uint64_t, std::vector<double>> p;           // by hash

  explicit DraftedPath(const Json& inputs) : draft(Path(inputs.at("draft"))) {
    for (size_t i = 0; i < draft.size(); ++i) {
      p[hash.back()] = Vec(inputs.at("rows").at(i).at("p"));
      q.push_back(RowOf(Vec(inputs.at("rows").at(i).at("q"))));
      hash.push_back(sampling::ExtendHash(hash.back(), draft[i]));
    }
    p[hash.back()] = Vec(inputs.at("p_bonus"));
  }
  decoding::DraftForest Forest() const {
    decoding::DraftForest forest = decoding::DraftForest::Empty(1);
    forest.layer_begin = forest.draws_begin = {0};
    for (int i = 0; i < draft.size(); ++i) {
      const TreePlace parent = i == 0 ? TreePlace(RootId{0}) : NodeId{i - 1};
      forest.draws.push_back(forest.Add(parent, draft[i]));
      forest.proposals.push_back({parent, 0, q[i]});
      forest.layer_begin.push_back(i + 1);
      forest.draws_begin.push_back(i + 1);
    }
    return forest;
  }
};

std::vector<double> Dense(const decoding::LayerDistribution& distribution, size_t vocab) {
  std::vector<double> dense(vocab, 0.0);
  double sum = 0;
  for (const decoding::EntryMass& entry : decoding::ListEntries(distribution))
    sum += sampling::Exp(entry.log_mass);
  for (const decoding::EntryMass& entry : decoding::ListEntries(distribution))
    dense[entry.entry.token] = sampling::Exp(entry.log_mass) / sum;
  return dense;
}

}  // namespace

void RunSpecDecode(const Json& inputs, const Json& expected, CaseCheck* check) {
  const DraftedPath path(inputs);
  const int gamma = static_cast<int>(path.draft.size());
  for (int i = 0; i < gamma; ++i) {
    const sampling::Distribution p_row = RowOf(path.p.at(path.hash[i]));
    decoding::LayerDistribution p, q;
    p.rows.resize(1);
    q.rows.resize(1);
    p.rows[0].sparse = &p_row;
    q.rows[0].sparse = &path.q[i];
    decoding::Residual a(p, q);
    const decoding::Entry d{0, path.draft[i]};
    check->Near(absl::StrCat("accept_prob[", i, "]"), std::min(1.0, a.Target(d) / a.Proposal(d)),
                Vec(expected.at("accept_prob")).at(i));
    check->Near(absl::StrCat("alpha[", i, "]"), a.Overlap(),
                inputs.at("rows").at(i).at("alpha").at("f64").get<double>());
    a.Reject();
    check->NearAll(absl::StrCat("residual[", i, "]"),
                   Dense(a.Normalised(), path.p.begin()->second.size()),
                   expected.at("residual").at(i));
  }
  decoding::DecodingParams params;
  params.max_tokens = gamma + 1;
  const decoding::DraftForest forest = path.Forest();
  test::ExactDistribution distribution;
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    decoding::TreeDecoder decoder(params, decoding::VerifyRrsIid, decoding::ChildSampling::kIid,
                                  std::make_shared<test::ForwardedChoices>(choices));
    test::FunctionRows rows([&](uint64_t hash) { return LogsOf(path.p.at(hash)); },
                            {sampling::kRootHash}, forest);
    decoder.Advance(forest, &rows);
    const std::vector<TokenId> out = decoder.paths().Tokens(decoder.last_layer()[0].path);
    distribution[{out.begin(), out.end()}] += choices->probability();
  });
  check->SameDistribution("distribution_of_emitted", distribution,
                          expected.at("distribution_of_emitted_given_draft"));
}

void RunTreeBlockLengths(const Json& inputs, const Json& expected, CaseCheck* check) {
  std::map<uint64_t, std::vector<double>> p, q;
  for (const auto& [prefix, rows] : inputs.at("rows_by_prefix").items()) {
    uint64_t hash = sampling::kRootHash;
    for (absl::string_view token : absl::StrSplit(prefix, ',', absl::SkipEmpty()))
      hash = sampling::ExtendHash(hash, std::stoi(std::string(token)));
    p[hash] = LogsOf(Vec(rows.at("p")));
    q[hash] = LogsOf(Vec(rows.at("q")));
  }
  const std::vector<int> branching = inputs.at("branching").get<std::vector<int>>();
  test::TreeSetting setting;
  setting.params.draft_tree = absl::StrJoin(branching, "-");
  setting.draft_depth = static_cast<int>(branching.size());
  setting.params.max_tokens = setting.draft_depth + 1;
  setting.target = [&](uint64_t hash) { return p.at(hash); };
  setting.draft = [&](uint64_t hash) { return q.at(hash); };
  setting.rule = decoding::VerifyRrsWithoutReplacement;
  setting.distribution = setting.relied_on = decoding::ChildSampling::kWithoutReplacement;
  check->SameDistribution("tree", test::RoundLengthDistribution(setting),
                          expected.at("distribution_of_emitted_length_tree_rrs_wor"));
  setting.params.draft_tree = "chain";
  setting.distribution = setting.relied_on = decoding::ChildSampling::kIid;
  setting.rule = decoding::VerifyRrsIid;
  check->SameDistribution("tokens", test::RoundLengthDistribution(setting),
                          expected.at("distribution_of_emitted_length_token_verification"));
  setting.rule = nullptr;
  check->SameDistribution("block", test::RoundLengthDistribution(setting),
                          expected.at("distribution_of_emitted_length_block_verification"));
}

void RunBlockVerify(const Json& inputs, const Json& expected, CaseCheck* check) {
  const DraftedPath path(inputs);
  std::vector<sampling::Distribution> rows;
  rows.reserve(path.hash.size());
  std::vector<decoding::LayerDistribution> distributions;
  std::vector<const sampling::Distribution*> proposals;
  for (uint64_t hash : path.hash) {
    rows.push_back(RowOf(path.p.at(hash)));
    distributions.emplace_back();
    distributions.back().rows.resize(1);
    distributions.back().rows[0].sparse = &rows.back();
  }
  for (const sampling::Distribution& q : path.q) proposals.push_back(&q);
  const decoding::BlockChances chances =
      decoding::FindBlockChances(distributions, proposals, path.draft);
  check->NearAll("p_i", chances.kept, expected.at("p_i"));
  check->NearAll("h_i", chances.passes, expected.at("h_i"));
  for (size_t i = 0; i < path.draft.size(); ++i) {
    const Json& want = expected.at("residual_at_tau").at(i);
    if (want.is_null()) continue;  // that tau has probability 0
    check->NearAll(absl::StrCat("residual_at_tau[", i, "]"),
                   Dense(decoding::BlockResidual(distributions[i], path.q[i], chances.kept[i]),
                         path.p.begin()->second.size()),
                   want);
  }
}

}  // namespace coppice::golden
