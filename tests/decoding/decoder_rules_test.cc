// Small parts: the pool, the path tree, the rules of forests, the method table, the factory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>

#include "decoding/beam_decoder.h"
#include "decoding/draft_size.h"
#include "decoding/drafter.h"
#include "decoding/method.h"
#include "decoding/sequence/hypothesis_pool.h"
#include "sampling/rng.h"

namespace coppice::decoding {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PathTreeTest, EqualPathsAreOneAndShareTheirPrefix) {
  PathTree paths;
  const PathId a = paths.Extend(paths.Extend(kRootPath, 4), 5);
  EXPECT_EQ(paths.Extend(paths.Extend(kRootPath, 4), 5), a);
  const PathId b = paths.Extend(paths.Extend(paths.parent(a), 6), 7);
  EXPECT_THAT(paths.Tokens(b), ElementsAre(4, 6, 7));
  EXPECT_EQ(paths.CommonAncestor({a, b}), paths.parent(a));
  EXPECT_EQ(paths.CommonAncestor({b, a}), paths.parent(a));
  EXPECT_EQ(paths.CommonAncestor({b}), b);
  EXPECT_EQ(paths.CommonAncestor({}), kRootPath);
}

DecodingParams PoolParams(double alpha, bool stop_when_full) {
  DecodingParams params;
  params.beam_width = 2;
  params.num_hypotheses = 2;
  params.max_tokens = 10;
  params.length_penalty = alpha;
  params.stop_when_full = stop_when_full;
  return params;
}

TEST(HypothesisPoolTest, KeepsTheBestAndDropsTheWorst) {
  PathTree paths;
  HypothesisPool pool(PoolParams(1, true));
  const PathId one = paths.Extend(kRootPath, 1), two = paths.Extend(one, 2),
               three = paths.Extend(two, 3);
  pool.Insert(paths, one, -3, true);
  pool.Insert(paths, one, -3, true);
  EXPECT_EQ(pool.entries().size(), 1u);
  pool.Insert(paths, two, -4, true);
  pool.Insert(paths, three, -9, true);  // score -3 like the first, but later
  EXPECT_EQ(pool.entries().size(), 2u);
  EXPECT_THAT(pool.Result(paths)[0].tokens, ElementsAre(1, 2));
  EXPECT_THAT(pool.Result(paths)[1].tokens, ElementsAre(1));
}

TEST(HypothesisPoolTest, ExactPolicyWaitsForTheBoundAndStopsAtEquality) {
  PathTree paths;
  HypothesisPool pool(PoolParams(1, false));
  pool.Insert(paths, paths.Extend(kRootPath, 1), -1, true);
  EXPECT_FALSE(pool.PolicyStops(-100));
  pool.Insert(paths, paths.Extend(kRootPath, 2), -2, true);
  EXPECT_EQ(pool.Bound(-20, 3), -2);
  EXPECT_TRUE(pool.PolicyStops(pool.Bound(-20, 3)));
  EXPECT_FALSE(pool.PolicyStops(pool.Bound(-19, 3)));
  EXPECT_EQ(HypothesisPool(PoolParams(0, false)).Bound(-3, 4), -3);
  EXPECT_NEAR(HypothesisPool(PoolParams(-1, false)).Bound(-3, 4), -15, 1e-12);
}

// One that is returned suffices, whatever the width.
TEST(HypothesisPoolTest, ExactPolicyWaitsForThoseThatAreReturned) {
  PathTree paths;
  DecodingParams params = PoolParams(0, false);
  params.beam_width = 4;
  params.num_hypotheses = 1;
  HypothesisPool pool(params);
  EXPECT_FALSE(pool.PolicyStops(-100));
  pool.Insert(paths, paths.Extend(kRootPath, 1), -2, true);
  EXPECT_FALSE(pool.PolicyStops(-1.5));
  EXPECT_TRUE(pool.PolicyStops(-2));
  params.num_hypotheses = 2;
  HypothesisPool two(params);
  two.Insert(paths, paths.Extend(kRootPath, 1), -2, true);
  EXPECT_FALSE(two.PolicyStops(-100));
  two.Insert(paths, paths.Extend(kRootPath, 2), -3, true);
  EXPECT_FALSE(two.PolicyStops(-2.5));
  EXPECT_TRUE(two.PolicyStops(-3));
  params.stop_when_full = true;
  HypothesisPool first(params);
  first.Insert(paths, paths.Extend(kRootPath, 1), -2, true);
  first.Insert(paths, paths.Extend(kRootPath, 2), -3, true);
  EXPECT_FALSE(first.PolicyStops(-100));
}

DraftForest SmallForest() {
  DraftForest forest = DraftForest::Empty(2);
  forest.token = {3, 4, 3};
  forest.parent = {RootId{0}, RootId{1}, NodeId{0}};
  forest.layer_begin = {0, 2, 3};
  return forest;
}

TEST(DraftForestTest, EveryBrokenRuleIsNamed) {
  EXPECT_TRUE(SmallForest().Validate(5).ok());
  EXPECT_TRUE(DraftForest::Empty(1).Validate(5).ok());
  const auto broken = [](const std::function<void(DraftForest*)>& breaks) {
    DraftForest forest = SmallForest();
    breaks(&forest);
    return std::string(forest.Validate(5).message());
  };
  EXPECT_THAT(broken([](DraftForest* f) { f->token[1] = 5; }), HasSubstr("token[1]"));
  EXPECT_THAT(broken([](DraftForest* f) { f->token[1] = -1; }), HasSubstr("token[1]"));
  EXPECT_THAT(broken([](DraftForest* f) { f->parent[1] = RootId{2}; }), HasSubstr("parent[1]"));
  EXPECT_THAT(broken([](DraftForest* f) { f->parent[2] = RootId{0}; }), HasSubstr("parent[2]"));
  EXPECT_THAT(broken([](DraftForest* f) { f->parent[2] = NodeId{2}; }), HasSubstr("parent[2]"));
  EXPECT_THAT(broken([](DraftForest* f) { f->parent.pop_back(); }), HasSubstr("2 parents"));
  EXPECT_THAT(broken([](DraftForest* f) { f->layer_begin = {0, 2}; }), HasSubstr("layer_begin"));
  EXPECT_THAT(broken([](DraftForest* f) {
                f->layer_begin = {0, 3, 2, 3};
              }),
              HasSubstr("layer_begin"));
  EXPECT_THAT(broken([](DraftForest* f) {
                f->parent[1] = RootId{0};
                f->token[1] = 3;
              }),
              HasSubstr("same token"));
  EXPECT_THAT(broken([](DraftForest* f) {
                f->proposals = {{NodeId{0}, 0, {{1}, {-0.5}}}};
              }),
              HasSubstr("sum"));
  EXPECT_THAT(broken([](DraftForest* f) {
                f->proposals = {{NodeId{9}, 0, {{1}, {0}}}};
              }),
              HasSubstr("node 9"));
}

TEST(MethodTest, AutoServesEveryDecodingAndWrongPairsAreRefused) {
  DecodingParams params;
  EXPECT_EQ(ResolveMethod(params).value()->name, "gumbel_coupling");
  params.kind = sampling::DecodingKind::kBeamSampling;
  EXPECT_EQ(ResolveMethod(params).value()->name, "gumbel_coupling");
  params.method = FindMethod("dsbd");
  EXPECT_EQ(ResolveMethod(params).value(), params.method);
  params.method = FindMethod("speculative_beam_search");
  EXPECT_EQ(
      ResolveMethod(params).status().message(),
      "speculative.method: 'speculative_beam_search' does not serve decoding 'beam_sampling'");
  params.method = nullptr;
  params.kind = sampling::DecodingKind::kBeamSearch;
  EXPECT_EQ(ResolveMethod(params).value()->name, "speculative_beam_search");
  params.kind = sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  EXPECT_EQ(ResolveMethod(params).value()->name, "gumbel_top_k");
  params.kind = sampling::DecodingKind::kMultinomial;
  params.method = FindMethod("speculative_beam_search");
  EXPECT_FALSE(ResolveMethod(params).ok());
  params.sampling.temperature = 0;
  EXPECT_EQ(ResolveMethod(params).value(), params.method);
  params.sampling.mode = sampling::SamplingScope::kJoint;
  EXPECT_THAT(std::string(ResolveMethod(params).status().message()), HasSubstr("'joint'"));
  EXPECT_EQ(FindMethod("magic"), nullptr);
}

TEST(MethodTest, ANameForAnswersWhateverIsResolved) {
  DecodingParams params;
  EXPECT_EQ(MethodName(params), "auto");
  params.method = FindMethod("dsbd");
  EXPECT_EQ(MethodName(params), "dsbd");
  params.plain = true;
  EXPECT_EQ(MethodName(params), "none");
  EXPECT_FALSE(DraftSizeOf(params).drafts);
}

// The largest width and depth of a message: their product has more than 32 bits.
TEST(DraftSizeTest, ADraftBeyondAllBoundsDoesNotLookSmall) {
  DecodingParams params;
  params.draft_width = params.draft_depth = 1 << 16;
  EXPECT_EQ(DraftSizeOf(params).Nodes(1 << 16, 1 << 16), std::numeric_limits<int>::max());
  EXPECT_GT(KvPagesBound(params, /*prompt_tokens=*/1, {}), int64_t{1} << 26);
}

// Every text has this format.
class AnyText : public OutputFormat {
 public:
  State Start() const override { return 0; }
  State Next(State state, TokenId) const override { return state; }
  std::shared_ptr<const AllowedTokens> Allowed(State) const override {
    return std::make_shared<AllowedTokens>();
  }
  bool CutShort(State) const override { return false; }
};

TEST(DecoderFactoryTest, NamesTheFieldThatIsWrong) {
  const auto message = [](const std::function<void(DecodingParams*)>& breaks) {
    DecodingParams params;
    breaks(&params);
    return std::string(MakeBeamDecoder(params).status().message());
  };
  EXPECT_THAT(message([](DecodingParams* p) { p->beam_width = 0; }), HasSubstr("beam_width"));
  EXPECT_THAT(message([](DecodingParams* p) { p->beam_width = 2; }), HasSubstr("beam_width"));
  EXPECT_THAT(message([](DecodingParams* p) { p->num_hypotheses = 2; }),
              HasSubstr("n is 2 but must not exceed beam_width, which is 1"));
  EXPECT_THAT(message([](DecodingParams* p) { p->max_tokens = 0; }), HasSubstr("max_tokens"));
  EXPECT_THAT(message([](DecodingParams* p) { p->sampling.top_p = 1.5; }), HasSubstr("top_p"));
  EXPECT_THAT(message([](DecodingParams* p) { p->sampling.temperature = -1; }),
              HasSubstr("temperature"));
  EXPECT_THAT(message([](DecodingParams* p) { p->sampling.temperature = 1e-308; }),
              HasSubstr("temperature"));
  EXPECT_THAT(message([](DecodingParams* p) {
                p->kind = sampling::DecodingKind::kBeamSampling;
                p->sampling.temperature = 0;
              }),
              HasSubstr("temperature"));
  EXPECT_THAT(message([](DecodingParams* p) {
                p->kind = sampling::DecodingKind::kBeamSearch;
                p->sampling.top_k = 4;
              }),
              HasSubstr("beam_search"));
  const auto formatted = [&](const std::function<void(DecodingParams*)>& breaks) {
    return message([&](DecodingParams* p) {
      p->format_spec = {FormatSpec::Kind::kRegex, "a*"};
      p->format = std::make_shared<AnyText>();
      p->stop_ids = {2};
      breaks(p);
    });
  };
  EXPECT_EQ(formatted([](DecodingParams*) {}), "");
  EXPECT_THAT(formatted([](DecodingParams* p) { p->format = nullptr; }), HasSubstr("format_spec:"));
  EXPECT_THAT(formatted([](DecodingParams* p) { p->min_tokens = 1; }),
              HasSubstr("format_spec cannot be combined with min_tokens"));
  EXPECT_THAT(formatted([](DecodingParams* p) { p->stop_ids.clear(); }),
              HasSubstr("format_spec: needs a token that ends a text"));
  for (const sampling::SamplingScope mode :
       {sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut}) {
    EXPECT_THAT(formatted([mode](DecodingParams* p) {
                  p->kind = sampling::DecodingKind::kBeamSampling;
                  p->sampling.mode = mode;
                }),
                HasSubstr("format_spec cannot be combined with sampling_scope"));
  }
  DraftState state;
  EXPECT_FALSE(MakeDrafter(DecodingParams(), state, 4).ok());
  state = {{sampling::kRootHash}, {0.0}, {1}, {7}, 0};
  EXPECT_FALSE(MakeDrafter(DecodingParams(), state, 4).ok());
}

}  // namespace
}  // namespace coppice::decoding
