// Bad forests from a draft node. Forests of real drafters are changed at random. They go through
// the same checks as a message (conversion, DraftForest::Validate, CheckForest) into the verifier
// of every method. Nothing crashes. Every refusal says what is wrong and where. After a forest that
// passes, the sequence still runs to its end. Run it under asan too.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "decoding/beam_decoder.h"
#include "decoding/draft_size.h"
#include "decoding/drafter.h"
#include "decoding/method.h"
#include "lab/exact/hash_lm.h"
#include "proto/convert.h"
#include "worker/draft_client.h"

namespace coppice::worker {
namespace {

using Random = std::mt19937_64;

constexpr int kVocab = 12;
constexpr int kWidth = 4, kDepth = 3;
const test::HashLm kModel{.vocab_size = kVocab, .salt = 5, .power = 3, .noise = 8};

struct Setting {
  const decoding::MethodRow* method;
  decoding::DecodingParams params;
};

// Every method that drafts, with every decoding and one set of sampling parameters of each kind
// that it serves. At temperature 0.01, most masses of a row underflow in f64.
std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const decoding::MethodRow& row : decoding::Methods()) {
    if (row.form == decoding::DraftForm::kNone) continue;
    for (const sampling::DecodingKind kind : row.serves) {
      for (const double temperature : {1.0, 0.01, sampling::kLeastTemperature, 0.0}) {
        for (const sampling::SamplingScope mode :
             {sampling::SamplingScope::kRow, sampling::SamplingScope::kJoint}) {
          decoding::DecodingParams params;
          params.kind = kind;
          params.method = &row;
          params.sampling.temperature = temperature;
          params.sampling.mode = mode;
          params.sampling.top_k = mode == sampling::SamplingScope::kJoint ? 5 : 0;
          if (kind != sampling::DecodingKind::kMultinomial) params.beam_width = 3;
          params.refill = temperature == 1.0;
          params.max_tokens = 6;
          params.min_tokens = 1;
          params.stop_ids = {2, 7};
          params.stop_when_full = false;
          if (row.reads("width_threshold") && temperature < 1) params.width_threshold = 0.7;
          params.draft_width = row.form == decoding::DraftForm::kPath ? 1 : row.most_children;
          if (decoding::MakeBeamDecoder(params).ok()) settings.push_back({&row, params});
        }
      }
    }
  }
  return settings;
}

decoding::DraftForest HonestForest(const decoding::DecodingParams& params,
                                   const decoding::DraftState& state, int depth) {
  auto drafter =
      decoding::MakeDrafter(params, state, params.draft_width > 0 ? params.draft_width : kWidth);
  EXPECT_TRUE(drafter.ok()) << drafter.status();
  for (int level = 0; level < depth && !(*drafter)->frontier().empty(); ++level) {
    const std::vector<uint64_t> hashes = test::RowHashes(state.root_hash, (*drafter)->forest());
    std::vector<sampling::Distribution> rows;
    for (const TreePlace place : (*drafter)->frontier()) {
      const int row = (*drafter)->forest().RowOf(place);
      const std::vector<double> log_probs = kModel.DraftLogProbs(hashes[row]);
      const std::vector<float> logits(log_probs.begin(), log_probs.end());
      rows.push_back(
          decoding::DraftRow(logits, params, static_cast<int>(state.layers_committed) + level));
    }
    (*drafter)->Grow(rows);
  }
  return (*drafter)->Sent();
}

// Makes one change that keeps most of the structure, so many changed forests reach a verifier.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  proto::Forest Mutate(proto::Forest forest, const proto::Forest& other) {
    for (uint64_t changes = 1 + Below(2); changes > 0; --changes) ChangeOnce(&forest, other);
    return forest;
  }

 private:
  uint64_t Below(uint64_t end) { return random_() % end; }
  int32_t AnyInt() {
    const int32_t values[] = {-1,
                              0,
                              1,
                              2,
                              3,
                              kVocab,
                              std::numeric_limits<int32_t>::max(),
                              std::numeric_limits<int32_t>::min()};
    return Below(2) == 0 ? static_cast<int32_t>(Below(14)) - 4 : values[Below(std::size(values))];
  }
  double AnyLog() {
    const double values[] = {0, -0.1, -800, -1e300, 1e-12, 1, NAN, INFINITY, -INFINITY};
    return values[Below(std::size(values))];
  }
  template <typename Field>
  void ChangeInt(Field* field) {
    if (field->empty() || Below(5) == 0) return field->Add(AnyInt());
    if (Below(5) == 0) return field->RemoveLast();
    field->Set(static_cast<int>(Below(field->size())), AnyInt());
  }

  // Keeps the layer begins right after an entry of one layer was added or removed.
  static void Shift(google::protobuf::RepeatedField<int32_t>* begins, int from, int by) {
    for (int layer = from; layer < begins->size(); ++layer) {
      begins->Set(layer, begins->Get(layer) + by);
    }
  }

  void ChangeDraws(proto::Forest* forest) {
    auto* draws = forest->mutable_draw();
    auto* begins = forest->mutable_draw_begin();
    switch (Below(5)) {
      case 0:  // removes all draws
        draws->Clear();
        begins->Clear();
        return;
      case 1:  // adds draws to a tree that should have none, or replaces them
        *begins = forest->layer_begin();
        draws->Clear();
        for (int node = 0; node < forest->token_size(); ++node) draws->Add(node);
        return;
      case 2:  // moves the begin of a layer
        if (begins->size() > 2) Shift(begins, 1 + static_cast<int>(Below(begins->size() - 2)), 1);
        return;
      case 3:  // changes the node of a draw
        if (!draws->empty()) {
          draws->Set(static_cast<int>(Below(draws->size())),
                     static_cast<int32_t>(Below(forest->token_size() + 1)));
        }
        return;
      case 4: {  // adds a copy of a draw
        if (begins->size() < 2) return;
        const int layer = static_cast<int>(Below(begins->size() - 1));
        const int at = begins->Get(layer);
        if (at < 0 || at >= draws->size()) return;
        draws->Add(0);
        for (int i = draws->size() - 1; i > at; --i) draws->Set(i, draws->Get(i - 1));
        Shift(begins, layer + 1, 1);
        return;
      }
    }
  }

  void ChangeProposals(proto::Forest* forest) {
    if (forest->proposal().empty()) {
      forest->add_proposal()->set_node(AnyInt());
      return;
    }
    const int at = static_cast<int>(Below(forest->proposal_size()));
    proto::Proposal* proposal = forest->mutable_proposal(at);
    switch (Below(7)) {
      case 0:
        return forest->clear_proposal();
      case 1:
        return forest->mutable_proposal()->DeleteSubrange(at, 1);
      case 2:
        return proposal->set_node(AnyInt());
      case 3:
        return proposal->set_log_weight(AnyLog());
      case 4:
        return ChangeInt(proposal->mutable_token());
      case 5:
        if (!proposal->log_q().empty()) {
          proposal->set_log_q(static_cast<int>(Below(proposal->log_q_size())), AnyLog());
        }
        return;
      case 6: {  // gives all mass to one token; the others underflow in f64
        const int likely = static_cast<int>(Below(proposal->log_q_size() + 1));
        for (int i = 0; i < proposal->log_q_size(); ++i) {
          proposal->set_log_q(i, i == likely ? 0.0 : -800.0);
        }
        return;
      }
    }
  }

  void ChangeOnce(proto::Forest* forest, const proto::Forest& other) {
    switch (Below(8)) {
      case 0:
        return ChangeInt(forest->mutable_token());
      case 1:
        return ChangeInt(forest->mutable_parent());
      case 2:
        return ChangeInt(forest->mutable_layer_begin());
      case 3:
        return Below(4) == 0 ? forest->set_num_roots(AnyInt()) : ChangeDraws(forest);
      case 4:
        return ChangeInt(Below(2) == 0 ? forest->mutable_draw() : forest->mutable_draw_begin());
      case 5:  // takes parts from another forest
        if (Below(2) == 0) *forest->mutable_proposal() = other.proposal();
        if (Below(2) == 0) *forest->mutable_token() = other.token();
        if (Below(2) == 0) *forest->mutable_draw() = other.draw();
        return;
      case 6:
        return ChangeDraws(forest);
      case 7:
        return ChangeProposals(forest);
    }
  }

  Random random_;
};

// The message must name a field of the forest or the request, and a place in it or a number.
void ExpectNamed(const absl::Status& status) {
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::string text(status.message());
  bool named = false;
  for (const char* field : {"token", "parent", "layer_begin", "proposal", "draw", "num_roots",
                            "node", "depth", "log_q"}) {
    named = named || text.find(field) != std::string::npos;
  }
  EXPECT_TRUE(named) << text;
}

class Sequence {
 public:
  explicit Sequence(const Setting& setting) : decoder_(*decoding::MakeBeamDecoder(setting.params)) {
    Round(decoding::DraftForest::Empty(1));
  }
  decoding::BeamDecoder& decoder() { return *decoder_; }
  void Round(const decoding::DraftForest& forest) {
    test::HashLmRows rows(kModel, decoder_->draft_state().root_hash, forest, /*in_f32=*/true);
    const decoding::Verdict verdict = decoder_->Advance(forest, &rows);
    EXPECT_GE(verdict.stats.layers, 1);
    EXPECT_EQ(verdict.node_path.size(), forest.token.size());
  }
  void Finish() {
    while (!decoder_->finished()) {
      Round(decoding::DraftForest::Empty(static_cast<int>(decoder_->roots().size())));
    }
    const std::vector<decoding::Hypothesis> result = decoder_->Result();
    ASSERT_FALSE(result.empty());
    for (const decoding::Hypothesis& hypothesis : result) {
      EXPECT_TRUE(std::isfinite(hypothesis.joint_log_probability));
      for (const TokenId token : hypothesis.tokens) EXPECT_TRUE(token >= 0 && token < kVocab);
    }
  }

 private:
  std::unique_ptr<decoding::BeamDecoder> decoder_;
};

TEST(HostileForestTest, EveryMethodRefusesByNameOrGoesOn) {
  constexpr int kMutants = 400;
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(absl::StrCat(
        setting.method->name, " ", std::string(sampling::DecodingKindName(setting.params.kind)),
        " T=", setting.params.sampling.temperature, " ",
        std::string(sampling::SamplingScopeName(setting.params.sampling.mode))));
    Sequence first(setting);
    if (first.decoder().finished()) continue;
    const decoding::DraftState state = first.decoder().draft_state();
    const int width = setting.params.draft_width > 0 ? setting.params.draft_width : kWidth;
    const AskedForest asked{setting.method, static_cast<int>(state.root_hash.size()), kDepth,
                            decoding::DraftSizeOf(setting.params).Nodes(width, kDepth),
                            setting.params.draft_top_k};
    const decoding::DraftForest honest = HonestForest(setting.params, state, kDepth);
    ASSERT_TRUE(CheckForest(honest, asked).ok()) << CheckForest(honest, asked);
    decoding::DecodingParams reseeded = setting.params;
    reseeded.seed = 1;
    const proto::Forest good = proto::ForestToMessage(honest);
    const proto::Forest other = proto::ForestToMessage(HonestForest(reseeded, state, kDepth));
    Mutator mutator(11);
    int refused = 0;
    for (int i = 0; i < kMutants; ++i) {
      const proto::Forest message = mutator.Mutate(good, other);
      const auto forest = proto::ForestFromMessage(message, kVocab);
      if (!forest.ok()) {
        ExpectNamed(forest.status());
        ++refused;
        continue;
      }
      if (forest->num_roots != asked.roots) continue;  // never reaches a verifier
      const absl::Status status = CheckForest(*forest, asked);
      if (!status.ok()) ExpectNamed(status);
      refused += !status.ok();
      // If the verifier cannot use the forest, its round is a plain step.
      Sequence sequence(setting);
      sequence.Round(*forest);
      sequence.Finish();
      ASSERT_FALSE(HasFatalFailure());
    }
    EXPECT_GT(refused, kMutants / 10);
    EXPECT_LT(refused, kMutants * 95 / 100);
  }
}

}  // namespace
}  // namespace coppice::worker
