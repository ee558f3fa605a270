// Whole rounds over a catalogue, with real (tiny) models and without sockets: prefill, draft, verify
// step and commit are those of worker and draft node. Every method gives items, drafts change no
// reproducible answer, and a draft node that knows the catalogue drafts inside of it, to the end of
// its items.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "catalogue/catalogue_format.h"
#include "decoding/method.h"
#include "lab/experiments/local_replica.h"
#include "tests/catalogue/sample_catalogue.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::worker {
namespace {

constexpr int kVocab = 24;
constexpr TokenId kStop = 23;

void Write(const std::string& dir, uint64_t seed, int layers) {
  test::TinyLlamaOptions options;
  options.vocab = kVocab;
  options.layers = layers;
  options.seed = seed;
  test::WriteTinyLlama(test::MakeTinyLlama(options), dir);
}

enum class Drafts { kNone, kKnowing, kUnknowing };

struct Outcome {
  std::vector<decoding::Hypothesis> hypotheses;
  int drafted = 0;
  int outside = 0;  // nodes that begin no item, or stand below a whole one
};

class CatalogueRoundTest : public ::testing::Test {
 protected:
  CatalogueRoundTest() {
    Write(target_.path(), 1, 2);
    Write(draft_.path(), 2, 1);
    lab::LocalReplicaOptions options;
    options.target_dir = target_.path();
    options.draft_dir = draft_.path();
    options.kv_bytes = 8 << 20;
    replica_ = *lab::LocalReplica::Load(options);
  }

  int Outside(const decoding::DraftForest& forest, const OutputFormat& format) const {
    int outside = 0;
    for (int node = 0; node < forest.size(); ++node) {
      const RootId root = forest.RootOf(NodeId{node});
      std::vector<TokenId> path =
          replica_->decoder().paths().Tokens(replica_->decoder().roots()[Index(root)]);
      forest.AppendPath(NodeId{node}, &path);
      OutputFormat::State state = format.Start();
      bool inside = true;
      for (const TokenId token : path) {
        inside =
            inside && !format.Complete(state) && state >= 0 && format.Allowed(state)->Has(token);
        state = format.Next(state, token);
      }
      outside += inside ? 0 : 1;
    }
    return outside;
  }

  Outcome Run(const decoding::DecodingParams& params, Drafts drafts) {
    const bool path = params.method->form == decoding::DraftForm::kPath;
    Outcome outcome;
    EXPECT_TRUE(
        replica_->Open({5, 6, 7, 9}, params, drafts != Drafts::kNone, drafts == Drafts::kKnowing)
            .ok());
    decoding::DraftForest forest = decoding::DraftForest::Empty(1);
    while (true) {
      const absl::Status status = replica_->Round(std::move(forest)).status();
      EXPECT_TRUE(status.ok()) << status;
      const decoding::BeamDecoder& decoder = replica_->decoder();
      if (!status.ok() || decoder.finished()) break;
      const int depth = std::min(3, decoder.max_useful_depth());
      forest = decoding::DraftForest::Empty(static_cast<int>(decoder.roots().size()));
      if (drafts == Drafts::kNone || depth == 0) continue;
      forest = *replica_->Draft(path ? 1 : 5, depth);
      outcome.drafted += forest.size();
      outcome.outside += Outside(forest, *params.format);
    }
    outcome.hypotheses = replica_->decoder().Result();
    replica_->Close();
    EXPECT_TRUE(replica_->CheckIntegrity().ok()) << replica_->CheckIntegrity();
    EXPECT_EQ(replica_->target_blocks_used(), 0);
    EXPECT_EQ(replica_->draft_blocks_used(), 0);
    return outcome;
  }

  test::TempDir target_, draft_;
  std::unique_ptr<lab::LocalReplica> replica_;
};

decoding::DecodingParams Params(const decoding::MethodRow& row, sampling::DecodingKind kind,
                                const catalogue::Catalogue& catalogue, uint64_t seed) {
  decoding::DecodingParams params;
  params.kind = kind;
  params.method = &row;
  params.beam_width = kind == sampling::DecodingKind::kMultinomial ? 1 : 5;
  params.num_hypotheses = params.beam_width;
  params.max_tokens = catalogue.longest() + 3;
  params.seed = seed;
  if (catalogue.end() == catalogue::ItemEnd::kStop) params.stop_ids = {kStop};
  if (row.greedy_only) params.sampling.temperature = 0;
  if (row.form == decoding::DraftForm::kTree) params.draft_tree = "2-1";
  return params;
}

TEST_F(CatalogueRoundTest, EveryMethodGivesItemsAndDraftsStayInside) {
  int drafted = 0, outside = 0, same = 0;
  std::set<size_t> lengths;
  std::mt19937 random(7);
  for (const decoding::MethodRow& row : decoding::Methods()) {
    for (const sampling::DecodingKind kind : row.serves) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        SCOPED_TRACE(testing::Message() << row.name << " " << sampling::DecodingKindName(kind));
        const auto end = seed % 2 == 0 ? catalogue::ItemEnd::kNone : catalogue::ItemEnd::kStop;
        const auto items = catalogue::RandomItems(&random, kStop, 60, 5, end);
        const auto catalogue = catalogue::MakeCatalogue(items, end, kVocab);
        decoding::DecodingParams params = Params(row, kind, *catalogue, seed);
        params.format = *MakeCatalogueFormat(catalogue, {{}, {0, 1, 2}, {}}, params.stop_ids);
        std::vector<Outcome> outcomes;
        for (const Drafts drafts : {Drafts::kNone, Drafts::kKnowing, Drafts::kUnknowing}) {
          if (drafts != Drafts::kNone && row.form == decoding::DraftForm::kNone) continue;
          const Outcome outcome = Run(params, drafts);
          ASSERT_FALSE(outcome.hypotheses.empty());
          for (const decoding::Hypothesis& hypothesis : outcome.hypotheses) {
            EXPECT_TRUE(hypothesis.finished);
            std::vector<TokenId> item = hypothesis.tokens;
            if (end == catalogue::ItemEnd::kStop) {
              EXPECT_EQ(item.back(), kStop);
              item.pop_back();
            }
            EXPECT_GT(catalogue->ItemOf(item), 2);
            lengths.insert(item.size());
          }
          drafted += outcome.drafted;
          EXPECT_TRUE(drafts != Drafts::kKnowing || outcome.outside == 0) << outcome.outside;
          outside += outcome.outside;
          outcomes.push_back(outcome);
          if (!row.reproducible) continue;
          ASSERT_EQ(outcome.hypotheses.size(), outcomes[0].hypotheses.size());
          for (size_t i = 0; i < outcome.hypotheses.size(); ++i) {
            const decoding::Hypothesis &one = outcome.hypotheses[i],
                                       &other = outcomes[0].hypotheses[i];
            EXPECT_EQ(one.tokens, other.tokens);
            EXPECT_EQ(one.joint_log_probability, other.joint_log_probability);
          }
          ++same;
        }
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(drafted, 500);
  EXPECT_GT(outside, 100);  // of nodes that do not know the catalogue
  EXPECT_GT(same, 60);
  EXPECT_EQ(lengths.size(), 5u);
}

}  // namespace
}  // namespace coppice::worker
