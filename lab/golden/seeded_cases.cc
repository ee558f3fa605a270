// Seeded iterations of the rejection verifiers of joint layers, every uniform compared:
// docs/algorithms.md 2 (domains 3-6, epoch, layer hash) with 5.1, 5.2 and 5.5. Runs the production
// drafter and decoder and records their choices.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/layer/dsbd_wor.h"
#include "lab/exact/layered_distribution.h"
#include "lab/golden/recorded_choices.h"
#include "lab/golden/runners.h"

namespace coppice::golden {
namespace {

std::vector<TokenId> NodePath(const decoding::LayeredDecoder& decoder,
                              absl::Span<const decoding::PathId> roots,
                              const decoding::DraftForest& forest, NodeId node) {
  std::vector<TokenId> path = decoder.paths().Tokens(roots[Index(forest.RootOf(node))]);
  forest.AppendPath(node, &path);
  return path;
}

void CheckDrafts(const decoding::LayeredDecoder& decoder, const Seeding& seeding,
                 const RecordedChoices& drawn, const decoding::DraftForest& forest,
                 const Json& layers, CaseCheck* check) {
  const std::vector<decoding::PathId> roots(decoder.roots().begin(), decoder.roots().end());
  size_t next = 0;
  check->Equal("draft layers", forest.depth(), layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const std::string name = absl::StrCat("draft_layers[", layer, "]");
    for (const Json& want : layers[layer].at("draws")) {
      check->True(name + ": too few draws", next < drawn.draws.size());
      if (next == drawn.draws.size()) return;
      CheckDraw(name, seeding, drawn.draws[next++], want, check);
    }
    std::vector<std::vector<TokenId>> drafts;
    for (int i = forest.draws_begin[layer]; i < forest.draws_begin[layer + 1]; ++i) {
      drafts.push_back(NodePath(decoder, roots, forest, forest.draws[i]));
    }
    check->Equal(name + ".drafts", drafts, layers[layer].at("drafts"));
  }
  check->Equal("number of draft draws", next, drawn.draws.size());
}

void CheckLayer(const std::string& name, const decoding::LayeredDecoder& decoder,
                const decoding::LayerRecord& record, const Json& want, CaseCheck* check) {
  Json beams = Json::array();
  for (size_t b = 0; b < record.beams.size(); ++b) {
    beams.push_back({{"path", decoder.paths().Tokens(record.beams[b])},
                     {"multiplicity", record.multiplicity[b]}});
  }
  check->Equal(name + ".current_beams", beams, want.at("current_beams"));
  CheckBeams(name + ".outputs", decoder.paths(), record.outputs, want.at("outputs"), check);
  for (size_t w = 0; w < record.outputs.size() && w < want.at("outputs").size(); ++w) {
    const Json draft =
        record.accepted_draft[w] < 0 ? Json(nullptr) : Json(record.accepted_draft[w]);
    check->Equal(name + ".accepted_draft", draft, want.at("outputs").at(w).at("accepted_draft"));
  }
  check->Equal(name + ".full", record.verified ? Json(record.full) : Json(nullptr),
               want.at("full"));
}

// Checks the coins in order. A removed draft has none.
void CheckCoins(const std::string& name, const Seeding& seeding, const RecordedChoices& decided,
                const Json& coins, size_t* next, CaseCheck* check) {
  for (const Json& want : coins) {
    if (want.at("removed").get<bool>()) continue;
    check->True(name + ": too few coins", *next < decided.coins.size());
    if (*next == decided.coins.size()) return;
    const RecordedCoin& coin = decided.coins[(*next)++];
    check->Equal(name + ".slot", coin.slot, want.at("slot"));
    check->Near(
        name + ".u",
        sampling::Uniform(seeding.seed, sampling::Domain::kAccept,
                          sampling::EpochHash(coin.layer_hash, seeding.epoch), coin.slot, 0),
        want.at("u").get<double>(), 0.0);
    check->Near(name + ".a", coin.a, want.at("a").get<double>());
    check->Near(name + ".b", coin.b, want.at("b").get<double>());
    check->Equal(name + ".accepted", coin.accepted, want.at("accepted"));
  }
}

test::LayeredSetting ReadSetting(const Json& inputs, const Seeding& seeding) {
  const test::HashLm lm = ReadHashLm(inputs);
  test::LayeredSetting setting;
  setting.params.kind = sampling::DecodingKind::kBeamSampling;
  setting.params.seed = seeding.seed;
  setting.params.beam_width = inputs.at("W").get<int>();
  setting.draft_depth = inputs.at("gamma").get<int>();
  setting.params.max_tokens = static_cast<int>(seeding.epoch) + setting.draft_depth + 2;
  setting.draft_width = inputs.at("W_S").get<int>();
  setting.removed = inputs.at("rule") == "E" ? decoding::RemovedParents::kReject
                                             : decoding::RemovedParents::kRenormalise;
  if (inputs.at("kind") == "dsbd_wor") {
    setting.rule = decoding::MakeDsbdWorRule;
    setting.drafts = decoding::DrawKind::kDistinct;
    if (inputs.at("target") == "wor")
      setting.params.kind = sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  }
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  setting.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
  for (const Json& beam : inputs.at("beams")) {
    double score = 0;
    uint64_t hash = sampling::kRootHash;
    for (TokenId token : Path(beam)) {
      score += lm.TargetLogProbs(hash)[token];
      hash = sampling::ExtendHash(hash, token);
    }
    setting.start.push_back({Path(beam), score});
  }
  return setting;
}

void RunLayeredRound(const Json& inputs, const Json& expected, CaseCheck* check) {
  const Seeding seeding{Hex(inputs.at("seed_hex").get<std::string>()),
                        inputs.at("epoch").get<uint64_t>()};
  const test::LayeredSetting setting = ReadSetting(inputs, seeding);
  decoding::SeededChoices seeded(seeding.seed);
  const auto drafted = std::make_shared<RecordedChoices>(&seeded);
  const auto decided = std::make_shared<RecordedChoices>(&seeded);
  decoding::LayeredDecoder decoder = test::MakeLayered(setting, decided);
  decoder.StartFrom(setting.start);
  const decoding::DraftState state = decoder.draft_state();
  const decoding::DraftForest forest =
      test::DraftLayeredRound(setting, state, setting.draft_depth, drafted);
  CheckDrafts(decoder, seeding, *drafted, forest, expected.at("draft_layers"), check);
  test::FunctionRows rows(setting.target, state.root_hash, forest);
  const decoding::Verdict verdict = decoder.Advance(forest, &rows);

  check->Equal("L", verdict.stats.layers, expected.at("L"));
  check->Equal("layers", decoder.last_round().size(), expected.at("layers").size());
  size_t coin = 0, draw = 0;
  for (size_t layer = 0; layer < expected.at("layers").size(); ++layer) {
    if (layer == decoder.last_round().size()) return;
    const Json& want = expected.at("layers").at(layer);
    const std::string name = absl::StrCat("layers[", layer, "]");
    CheckLayer(name, decoder, decoder.last_round()[layer], want, check);
    CheckCoins(name + ".coins", seeding, *decided, want.at("coins"), &coin, check);
    for (const Json& wanted : want.at("draws")) {
      check->True(name + ": too few draws", draw < decided->draws.size());
      if (draw == decided->draws.size()) return;
      CheckDraw(name + ".draws", seeding, decided->draws[draw++], wanted, check);
    }
  }
  check->Equal("number of coins", coin, decided->coins.size());
  check->Equal("number of draws", draw, decided->draws.size());
}

}  // namespace

void RunSeededRejection(const Json& inputs, const Json& expected, CaseCheck* check) {
  const std::string kind = inputs.at("kind").get<std::string>();
  if (kind == "dsbd" || kind == "dsbd_wor") {
    RunLayeredRound(inputs, expected, check);
  } else {
    RunSeededSequence(inputs, expected, check);
  }
}

}  // namespace coppice::golden
