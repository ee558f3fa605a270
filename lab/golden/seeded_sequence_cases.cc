// Seeded rounds of one sequence, every uniform compared: docs/algorithms.md 2 (domains 3-6,
// epoch) with 4.1, 4.2 and 4.7. Runs the production drafter and decoder and records their choices.
#include <memory>

#include "absl/strings/str_cat.h"
#include "lab/exact/tree_distribution.h"
#include "lab/golden/recorded_choices.h"
#include "lab/golden/runners.h"
#include "sampling/deterministic_math.h"

namespace coppice::golden {
namespace {

void CheckFinalDraw(const Seeding& seeding, const RecordedChoices& decided, const Json& want,
                    CaseCheck* check) {
  check->Equal("final draws", decided.draws.size(), want.is_null() ? 0 : 1);
  if (decided.draws.empty() || want.is_null()) return;
  const RecordedDraw& draw = decided.draws[0];
  CheckDraw("final_draw", seeding, draw, want, check);
  const std::vector<double> weights = Vec(want.at("weights"));
  double sum = 0, want_sum = 0;
  for (const decoding::EntryMass& entry : draw.entries) sum += sampling::Exp(entry.log_mass);
  for (double weight : weights) want_sum += weight;
  for (const decoding::EntryMass& entry : draw.entries) {
    check->Near("final_draw.weights", sampling::Exp(entry.log_mass) / sum,
                weights.at(entry.entry.token) / want_sum);
  }
}

void CheckUniform(const Seeding& seeding, const RecordedCoin& coin, const Json& want,
                  CaseCheck* check) {
  check->Near("coin.u",
              sampling::Uniform(seeding.seed, sampling::Domain::kAccept,
                                sampling::EpochHash(coin.layer_hash, seeding.epoch), coin.slot, 0),
              want.at("u").get<double>(), 0.0);
}

}  // namespace

void RunSeededSequence(const Json& inputs, const Json& expected, CaseCheck* check) {
  const std::string kind = inputs.at("kind").get<std::string>();
  const test::HashLm lm = ReadHashLm(inputs);
  const Seeding seeding{Hex(inputs.at("seed_hex").get<std::string>()),
                        inputs.at("epoch").get<uint64_t>()};
  const bool wor = kind == "rrs_wor", block = kind == "block_verify";
  const std::vector<TokenId> prefix = Path(inputs.at("path"));
  test::TreeSetting setting;
  setting.draft_depth = wor ? 1 : inputs.at("gamma").get<int>();
  setting.params.draft_tree = wor ? absl::StrCat(inputs.at("n").get<int>()) : "chain";
  setting.params.max_tokens = static_cast<int>(prefix.size()) + setting.draft_depth + 2;
  setting.distribution = setting.relied_on =
      wor ? decoding::ChildSampling::kWithoutReplacement : decoding::ChildSampling::kIid;
  setting.rule = block ? nullptr
                 : wor ? decoding::VerifyRrsWithoutReplacement
                       : decoding::VerifyRrsIid;
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  setting.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };

  decoding::SeededChoices seeded(seeding.seed);
  const auto drafted = std::make_shared<RecordedChoices>(&seeded);
  const auto decided = std::make_shared<RecordedChoices>(&seeded);
  const auto decoder = test::MakeTreeOrBlockDecoder(setting, decided);
  decoder->StartFrom(prefix, /*log_score=*/0);
  const decoding::DraftState state = decoder->draft_state();
  const decoding::DraftForest forest =
      test::DraftTreeRound(setting, state, setting.draft_depth, drafted);
  test::FunctionRows rows(setting.target, state.root_hash, forest);
  const decoding::Verdict verdict = decoder->Advance(forest, &rows);
  std::vector<TokenId> emitted = decoder->paths().Tokens(decoder->last_layer()[0].path);
  emitted.erase(emitted.begin(), emitted.begin() + prefix.size());

  const Json draws = wor ? Json::array({expected.at("draft_draw")}) : expected.at("draft_draws");
  check->Equal("draft draws", drafted->draws.size(), draws.size());
  for (size_t i = 0; i < draws.size() && i < drafted->draws.size(); ++i)
    CheckDraw(absl::StrCat("draft_draws[", i, "]"), seeding, drafted->draws[i], draws[i], check);
  const Json& coins = expected.at("coins");
  check->Equal("coins", decided->coins.size(), coins.size());
  for (size_t i = 0; i < coins.size() && i < decided->coins.size(); ++i) {
    const RecordedCoin& coin = decided->coins[i];
    const Json& want = coins[i];
    CheckUniform(seeding, coin, want, check);
    check->Equal("coin.slot", coin.slot, want.value("slot", 0));
    check->Near("coin: target", coin.a, want.at(block ? "h" : wor ? "a" : "p").get<double>());
    if (!block) check->Near("coin: proposal", coin.b, want.at(wor ? "b" : "q").get<double>());
    check->Equal("coin", coin.accepted, want.at(block ? "passed" : "accepted"));
  }
  if (wor) {
    check->Equal("token", emitted.at(0), expected.at("token"));
    const int matched = decoding::FindDraft(forest.token, emitted.at(0));
    check->Equal("matched_draft", matched, expected.at("matched_draft"));
    if (matched >= 0) return;  // the round goes on after the matched draft
  } else {
    check->Equal("draft", forest.token, expected.at("draft"));
    check->Equal("accepted", verdict.stats.accepted_nodes, expected.at("accepted"));
    check->Equal("emitted", emitted, expected.at("emitted"));
  }
  CheckFinalDraw(seeding, *decided, expected.at("final_draw"), check);
}

}  // namespace coppice::golden
