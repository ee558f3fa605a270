#include "proto/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"
#include "sampling/rng.h"
#include "tests/proto/expect_invalid.h"
#include "tests/proto/sample_messages.h"
#include "tests/testing/decoding_message.h"

namespace coppice::proto {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ConvertTest, DecodingSurvivesTheRoundTrip) {
  const decoding::DecodingParams params = SampleParams();
  const proto::Decoding message = DecodingToMessage(params);
  auto back = DecodingFromMessage(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(DecodingToMessage(*back).SerializeAsString(), message.SerializeAsString());
  EXPECT_EQ(back->sampling.logit_bias, params.sampling.logit_bias);
  EXPECT_EQ(back->stop_strings, params.stop_strings);
  EXPECT_EQ(back->width_schedule, params.width_schedule);
  EXPECT_TRUE(back->show_special_tokens);
  EXPECT_EQ(back->format_spec, params.format_spec);
  EXPECT_EQ(back->seed, params.seed);
  EXPECT_EQ(back->kind, params.kind);
}

TEST(ConvertTest, AMalformedTraceIsNone) {
  const coppice::TraceContext trace = {"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "01",
                                       "a=1"};
  proto::Trace message = TraceToMessage(trace);
  EXPECT_EQ(TraceFromMessage(message).trace_id, trace.trace_id);
  EXPECT_EQ(TraceFromMessage(message).parent_id, trace.parent_id);
  EXPECT_EQ(TraceFromMessage(message).state, "a=1");
  message.set_state("a");
  EXPECT_EQ(TraceFromMessage(message).trace_id, trace.trace_id);
  EXPECT_EQ(TraceFromMessage(message).state, "");
  message.set_parent("00-\n");
  EXPECT_EQ(TraceFromMessage(message).trace_id, "");
  EXPECT_EQ(TraceToMessage({}).parent(), "");
}

TEST(ConvertTest, DefaultParamsAreValid) {
  decoding::DecodingParams params;
  params.method = decoding::FindMethod("gumbel_coupling");
  EXPECT_TRUE(DecodingFromMessage(DecodingToMessage(params)).ok());
  params.method = nullptr;  // the sender must resolve it
  ExpectInvalid(DecodingFromMessage(DecodingToMessage(params)), "method");
}

TEST(ConvertTest, DecodingNamesTheBadField) {
  const auto with = [](auto change) {
    proto::Decoding message = DecodingToMessage(SampleParams());
    change(&message);
    return DecodingFromMessage(message);
  };
  ExpectInvalid(with([](auto* m) { m->set_kind("best"); }), "decoding");
  ExpectInvalid(with([](auto* m) { m->set_method(""); }), "method: \"\" is no method");
  ExpectInvalid(with([](auto* m) { m->set_method("auto"); }), "method: \"auto\" is no method");
  ExpectInvalid(with([](auto* m) { test::SetInteger("beam_width", 0, m); }), "beam_width");
  ExpectInvalid(with([](auto* m) { test::SetInteger("num_hypotheses", -1, m); }), "num_hypotheses");
  ExpectInvalid(with([](auto* m) { test::SetInteger("max_tokens", 0, m); }), "max_tokens");
  ExpectInvalid(with([](auto* m) { test::SetInteger("min_tokens", -2, m); }), "min_tokens");
  ExpectInvalid(with([](auto* m) { test::SetNumber("length_penalty", NAN, m); }), "length_penalty");
  ExpectInvalid(with([](auto* m) { test::SetNumber("temperature", -1, m); }), "temperature");
  ExpectInvalid(with([](auto* m) { test::SetNumber("temperature", INFINITY, m); }), "temperature");
  ExpectInvalid(with([](auto* m) { test::SetNumber("temperature", 1e-308, m); }), "temperature");
  ExpectInvalid(with([](auto* m) { test::SetInteger("top_k", -1, m); }), "top_k");
  ExpectInvalid(with([](auto* m) { test::SetNumber("repetition_penalty", 0, m); }),
                "repetition_penalty");
  ExpectInvalid(with([](auto* m) { test::SetNumber("frequency_penalty", NAN, m); }),
                "frequency_penalty");
  ExpectInvalid(with([](auto* m) { m->add_width_schedule(0); }), "width_schedule[3]");
  ExpectInvalid(with([](auto* m) { m->add_width_schedule(1 << 17); }), "width_schedule[3]");
  ExpectInvalid(with([](auto* m) { m->add_stop_strings(""); }), "stop_strings[3]");
  ExpectInvalid(with([](auto* m) { m->add_stop_strings(std::string(70000, 'x')); }),
                "stop_strings");
  ExpectInvalid(with([](auto* m) { m->set_format_kind("xml"); }),
                "format_kind: \"xml\" is no kind of format");
  ExpectInvalid(with([](auto* m) { m->clear_format_kind(); }), "format_text: has no kind");
  ExpectInvalid(with([](auto* m) { m->clear_format_text(); }), "format_text: is empty");
  ExpectInvalid(with([](auto* m) { m->set_format_text(std::string(kMostFormatBytes + 1, 'a')); }),
                "format_text: has 262145 bytes");
  ExpectInvalid(with([](auto* m) { test::SetNumber("top_p", 1.5, m); }), "top_p");
  ExpectInvalid(with([](auto* m) { test::SetNumber("min_p", NAN, m); }), "min_p");
  ExpectInvalid(with([](auto* m) { m->set_sampling_scope("col"); }), "sampling_scope");
  ExpectInvalid(with([](auto* m) { m->add_stop_ids(-5); }), "stop_ids[2]");
  ExpectInvalid(with([](auto* m) { m->set_bias_tokens(1, -1); }), "bias_tokens[1]");
  ExpectInvalid(with([](auto* m) { m->add_bias_tokens(1); }), "bias_values");
  ExpectInvalid(with([](auto* m) { m->set_bias_values(0, INFINITY); }), "bias_values[0]");
  ExpectInvalid(with([](auto* m) { m->set_bias_values(0, NAN); }), "bias_values[0]");
  ExpectInvalid(with([](auto* m) { test::SetInteger("draft_top_k", 0, m); }), "draft_top_k");
  ExpectInvalid(with([](auto* m) { test::SetInteger("draft_width", -1, m); }), "draft_width");
  ExpectInvalid(with([](auto* m) { test::SetInteger("draft_depth", 1 << 20, m); }), "draft_depth");
  ExpectInvalid(with([](auto* m) { test::SetNumber("width_threshold", -1e-9, m); }),
                "width_threshold");
  ExpectInvalid(with([](auto* m) { test::SetInteger("min_width", 0, m); }), "min_width");
  ExpectInvalid(with([](auto* m) { test::SetInteger("draft_beams", 0, m); }), "draft_beams");
  ExpectInvalid(with([](auto* m) { test::SetNumber("mjsd_threshold", NAN, m); }), "mjsd_threshold");
  ExpectInvalid(with([](auto* m) { test::SetNumber("fallback_threshold", 1.1, m); }),
                "fallback_threshold");
  ExpectInvalid(with([](auto* m) { test::SetNumber("rollback_threshold", INFINITY, m); }),
                "rollback_threshold");
  ExpectInvalid(with([](auto* m) { test::SetInteger("joint_tokens", 0, m); }), "joint_tokens");
  ExpectInvalid(with([](auto* m) { m->set_draft_tree("2-0"); }), "draft_tree");
}

// Scalars are sent by name: each row of the table once, with its type.
TEST(ConvertTest, ParametersAreRefusedByName) {
  const auto with = [](auto change) {
    proto::Decoding message = DecodingToMessage(SampleParams());
    change(&message);
    return DecodingFromMessage(message);
  };
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (!row.scalar()) continue;
    SCOPED_TRACE(row.name);
    const auto refused = [&](auto change, const std::string& why) {
      ExpectInvalid(with([&](proto::Decoding* m) { change(test::ParameterNamed(row.name, m)); }),
                    absl::StrCat(row.name, ": ", why).c_str());
    };
    refused([](proto::Parameter* p) { p->clear_value(); }, "has no value");
    if (row.member.type != decoding::ParameterType::kInteger)
      refused([](proto::Parameter* p) { p->set_integer(1); }, "is of type integer, want");
    if (row.member.type != decoding::ParameterType::kNumber)
      refused([](proto::Parameter* p) { p->set_number(1); }, "is of type number, want");
    if (row.member.type != decoding::ParameterType::kFlag)
      refused([](proto::Parameter* p) { p->set_flag(true); }, "is of type boolean, want");
    if (row.member.type != decoding::ParameterType::kSeed)
      refused([](proto::Parameter* p) { p->set_seed(1); }, "is of type integer of 64 bits, want");
    const auto copy = [&](proto::Decoding* m) {
      const proto::Parameter again = *test::ParameterNamed(row.name, m);
      *m->add_parameters() = again;
    };
    ExpectInvalid(with(copy), absl::StrCat(row.name, ": is given twice").c_str());
    const auto drop = [&](proto::Decoding* m) {
      auto* parameters = m->mutable_parameters();
      for (int i = 0; i < parameters->size(); ++i) {
        if (parameters->Get(i).name() == row.name) parameters->DeleteSubrange(i--, 1);
      }
    };
    ExpectInvalid(with(drop), absl::StrCat(row.name, ": is missing").c_str());
  }
  ExpectInvalid(with([](auto* m) { test::SetInteger("magic", 1, m); }),
                "\"magic\" is no parameter");
  ExpectInvalid(with([](auto* m) { test::SetInteger("", 1, m); }), "\"\" is no parameter");
  ExpectInvalid(with([](auto* m) { test::SetInteger("stop_ids", 1, m); }),
                "\"stop_ids\" is no parameter");  // it is in the table, but not a scalar
  ExpectInvalid(with([](auto* m) { test::SetInteger("a\nb", 1, m); }), "\"a\\nb\" is no parameter");
  const std::string long_name(1000, 'x');
  EXPECT_LT(with([&](auto* m) { test::SetInteger(long_name, 1, m); }).status().message().size(),
            200u);
}

TEST(ConvertTest, EveryScalarTravelsUnchangedInAnyOrder) {
  const decoding::DecodingParams params = SampleParams();
  proto::Decoding message = DecodingToMessage(params);
  auto* parameters = message.mutable_parameters();
  std::reverse(parameters->begin(), parameters->end());
  const auto back = DecodingFromMessage(message);
  ASSERT_TRUE(back.ok()) << back.status();
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (!row.scalar()) continue;
    EXPECT_EQ(row.member.get(*back), row.member.get(params)) << row.name;
    EXPECT_FALSE(decoding::IsDefault(row, *back)) << row.name;
  }
}

TEST(ConvertTest, ForestSurvivesTheRoundTrip) {
  const decoding::DraftForest forest = SampleForest();
  ASSERT_TRUE(forest.Validate(100).ok()) << forest.Validate(100);
  const proto::Forest message = ForestToMessage(forest);
  auto back = ForestFromMessage(message, 100);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ForestToMessage(*back).SerializeAsString(), message.SerializeAsString());
  EXPECT_EQ(back->parent, forest.parent);
  EXPECT_EQ(back->proposals[1].row.tokens, forest.proposals[1].row.tokens);
}

TEST(ConvertTest, ForestOutsideTheVocabularyIsRefused) {
  ExpectInvalid(ForestFromMessage(ForestToMessage(SampleForest()), 12), "token");
  proto::Forest message = ForestToMessage(SampleForest());
  message.mutable_proposal(1)->add_token(3);
  ExpectInvalid(ForestFromMessage(message, 100), "proposal[1]");
  message = ForestToMessage(SampleForest());
  message.set_num_roots(-1);
  ExpectInvalid(ForestFromMessage(message, 100), "num_roots");
}

TEST(ConvertTest, ForestNamesTheBadFieldAndNode) {
  const auto with = [](auto change) {
    proto::Forest message = ForestToMessage(SampleForest());
    change(&message);
    return ForestFromMessage(message, 100);
  };
  ExpectInvalid(with([](auto* m) { m->set_parent(2, 1 << 20); }), "parent[2]: 1048576");
  ExpectInvalid(with([](auto* m) { m->set_parent(2, 2); }), "parent[2]");   // is its own parent
  ExpectInvalid(with([](auto* m) { m->set_parent(2, -1); }), "parent[2]");  // skips a layer
  ExpectInvalid(with([](auto* m) { m->set_parent(0, 2); }), "parent[0]");   // a cycle: 2 is below 0
  ExpectInvalid(with([](auto* m) { m->set_parent(0, -3); }), "parent[0]");
  ExpectInvalid(with([](auto* m) { m->add_parent(0); }), "4 parents");
  ExpectInvalid(with([](auto* m) {
                  m->set_parent(1, -1);
                  m->set_token(1, 10);
                }),
                "two children of node -1");
  ExpectInvalid(with([](auto* m) { m->add_layer_begin(3); }), "layer_begin[2]: no nodes");
  ExpectInvalid(with([](auto* m) { m->add_layer_begin(5); }), "layer_begin[3]");
  ExpectInvalid(with([](auto* m) { m->mutable_proposal(2)->set_node(3); }),
                "proposals[2]: node 3: there is no such node");
  ExpectInvalid(with([](auto* m) { m->mutable_proposal(1)->set_node(-1); }), "node -1 has two");
  ExpectInvalid(with([](auto* m) { m->mutable_proposal(2)->set_log_q(0, -1); }),
                "proposals[2]: node 0: probabilities sum to");
  ExpectInvalid(with([](auto* m) { m->mutable_proposal(2)->set_log_q(0, NAN); }),
                "proposals[2]: node 0: log_probs");
  ExpectInvalid(with([](auto* m) { m->mutable_proposal(2)->set_log_q(0, INFINITY); }),
                "proposals[2]: node 0: log_probs");
  ExpectInvalid(with([](auto* m) { m->mutable_proposal(2)->set_token(0, 13); }),
                "proposals[2]: node 0: tokens");
  ExpectInvalid(with([](auto* m) {
                  m->mutable_proposal(2)->clear_token();
                  m->mutable_proposal(2)->clear_log_q();
                }),
                "proposals[2]: node 0: 0 tokens");
  ExpectInvalid(with([](auto* m) { m->mutable_proposal(0)->set_log_weight(NAN); }),
                "proposals[0]: node -1: log_weight");
  ExpectInvalid(with([](auto* m) { m->mutable_proposal(0)->set_log_weight(INFINITY); }),
                "proposals[0]: node -1: log_weight");
  ExpectInvalid(with([](auto* m) { m->set_draw(3, 1); }), "draws[3]: node 1 is not in layer 1");
  ExpectInvalid(with([](auto* m) { m->set_draw(0, 9); }), "draws[0]: node 9");
  ExpectInvalid(with([](auto* m) { m->add_draw(2); }), "draws_begin");
  ExpectInvalid(with([](auto* m) { m->add_draw_begin(4); }), "draws_begin");
}

TEST(ConvertTest, DraftRequestSurvivesTheRoundTrip) {
  const decoding::DraftRequest request = SampleRequest();
  auto back = DraftRequestFromMessage(DraftRequestToMessage(request), 100);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->session_id, request.session_id);
  EXPECT_EQ(back->round, request.round);
  EXPECT_EQ(back->width, request.width);
  EXPECT_EQ(back->depth, request.depth);
  EXPECT_EQ(back->stable_length, request.stable_length);
  EXPECT_EQ(back->stable_tokens, request.stable_tokens);
  EXPECT_EQ(back->roots.tree.num_roots, 1);
  EXPECT_EQ(back->roots.tree.token, request.roots.tree.token);
  EXPECT_EQ(back->roots.tree.parent, request.roots.tree.parent);
  EXPECT_EQ(back->roots.ends, request.roots.ends);
  const decoding::DraftState &got = back->state, &want = request.state;
  EXPECT_EQ(got.root_score, want.root_score);
  EXPECT_EQ(got.root_multiplicity, want.root_multiplicity);
  EXPECT_EQ(got.slot_root, want.slot_root);
  EXPECT_EQ(got.slot_token, want.slot_token);
  EXPECT_EQ(got.slot_log_prob, want.slot_log_prob);
  EXPECT_EQ(got.known_roots, want.known_roots);
  ASSERT_EQ(got.known_children.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(got.known_children[i].root, want.known_children[i].root);
    EXPECT_EQ(got.known_children[i].token, want.known_children[i].token);
    EXPECT_EQ(got.known_children[i].score, want.known_children[i].score);
    EXPECT_EQ(got.known_children[i].key, want.known_children[i].key);
  }
  ASSERT_EQ(got.group_beams.size(), want.group_beams.size());
  for (size_t i = 0; i < want.group_beams.size(); ++i) {
    EXPECT_EQ(got.group_beams[i].root, want.group_beams[i].root);
    EXPECT_EQ(got.group_beams[i].group, want.group_beams[i].group);
    EXPECT_EQ(got.group_beams[i].penalty, want.group_beams[i].penalty);
  }
  EXPECT_EQ(got.layers_committed, 9);
  EXPECT_THAT(RootHashes(back->roots, sampling::HashPath({3, 1})),
              ElementsAre(sampling::HashPath({3, 1, 7, 8, 9}), sampling::HashPath({3, 1, 7, 8}),
                          sampling::HashPath({3, 1, 7})));
}

TEST(ConvertTest, DraftRequestNamesTheBadField) {
  decoding::DraftRequest request = SampleRequest();
  request.roots.ends.pop_back();
  request.state = {};
  request.state.root_score = {-1.0, -2.0};
  request.state.root_multiplicity = {1, 2};
  const proto::DraftRequest good = DraftRequestToMessage(request);
  ASSERT_TRUE(DraftRequestFromMessage(good, 100).ok());
  const auto with_request = [&](auto change) {
    proto::DraftRequest message = good;
    change(&message);
    return DraftRequestFromMessage(message, 100);
  };
  const auto with = [&](auto change) {
    return with_request([&](auto* m) { change(m->mutable_state()); });
  };
  ExpectInvalid(with([](auto* m) { m->set_root_trie(1, 3); }), "root_trie[1]");
  ExpectInvalid(with([](auto* m) { m->set_root_trie(0, -1); }), "root_trie[0]");
  ExpectInvalid(with([](auto* m) { m->add_root_score(0); }), "root_score");
  ExpectInvalid(with([](auto* m) { m->set_root_score(1, NAN); }), "root_score[1]");
  ExpectInvalid(with([](auto* m) { m->set_root_score(1, -INFINITY); }), "root_score[1]");
  ExpectInvalid(with([](auto* m) { m->clear_root_multiplicity(); }), "root_multiplicity");
  ExpectInvalid(with([](auto* m) { m->set_root_multiplicity(0, 0); }), "root_multiplicity[0]");
  ExpectInvalid(with([](auto* m) { m->add_slot_root(2); }), "slot_root[0]");
  ExpectInvalid(with([](auto* m) { m->add_slot_token(2); }), "slot_token");
  ExpectInvalid(with([](auto* m) { m->add_slot_log_prob(-1); }), "slot_log_prob");
  const auto one_slot = [](auto* m, int token, double log_prob) {
    m->add_slot_root(0);
    m->add_slot_token(token);
    m->add_slot_log_prob(log_prob);
  };
  ASSERT_TRUE(with([&](auto* m) { one_slot(m, 2, -1); }).ok());
  ExpectInvalid(with([&](auto* m) { one_slot(m, -2, -1); }), "slot_token[0]");
  ExpectInvalid(with([&](auto* m) { one_slot(m, 100, -1); }), "slot_token[0]: 100");
  ExpectInvalid(with([&](auto* m) { one_slot(m, 2, INFINITY); }), "slot_log_prob[0]");
  const auto one_child = [](auto* m, int root, int token, double score, double key) {
    m->add_known_root(0);
    proto::KnownChild* child = m->add_known_child();
    child->set_root(root);
    child->set_token(token);
    child->set_score(score);
    child->set_key(key);
  };
  ASSERT_TRUE(with([&](auto* m) { one_child(m, 0, 5, -1, -1); }).ok());
  ExpectInvalid(with([](auto* m) { m->add_known_root(2); }), "known_root[0]");
  ExpectInvalid(with([&](auto* m) { one_child(m, 2, 5, -1, -1); }), "known_child[0]: root 2");
  ExpectInvalid(with([&](auto* m) { one_child(m, -1, 5, -1, -1); }), "known_child[0]: root -1");
  ExpectInvalid(with([&](auto* m) { one_child(m, 0, -5, -1, -1); }), "known_child[0]: token -5");
  ExpectInvalid(with([&](auto* m) { one_child(m, 0, 100, -1, -1); }), "known_child[0]: token 100");
  ExpectInvalid(with([&](auto* m) { one_child(m, 0, 5, NAN, -1); }), "known_child[0]");
  ExpectInvalid(with([&](auto* m) { one_child(m, 0, 5, -1, INFINITY); }), "known_child[0]");
  const auto one_beam = [](auto* m, int root, int group, double penalty) {
    proto::GroupBeam* beam = m->add_group_beam();
    beam->set_root(root);
    beam->set_group(group);
    beam->set_penalty(penalty);
  };
  ASSERT_TRUE(with([&](auto* m) { one_beam(m, 1, 3, 0.5); }).ok());
  ExpectInvalid(with([&](auto* m) { one_beam(m, 2, 0, 0); }), "group_beam[0]: root 2");
  ExpectInvalid(with([&](auto* m) { one_beam(m, -1, 0, 0); }), "group_beam[0]: root -1");
  ExpectInvalid(with([&](auto* m) { one_beam(m, 0, -1, 0); }), "group_beam[0]: group -1");
  ExpectInvalid(with([&](auto* m) { one_beam(m, 0, 0, NAN); }), "group_beam[0]");
  ExpectInvalid(with_request([](auto* m) { m->set_trie_parent(2, 2); }), "trie_parent[2]");
  ExpectInvalid(with_request([](auto* m) { m->set_trie_parent(0, -2); }), "trie_parent[0]");
  ExpectInvalid(with_request([](auto* m) { m->mutable_trie_token()->RemoveLast(); }), "trie_token");
  ExpectInvalid(with_request([](auto* m) { m->set_trie_token(1, -8); }), "trie_token[1]");
  ExpectInvalid(with_request([](auto* m) { m->set_trie_token(1, 100); }), "trie_token[1]: 100");
  ExpectInvalid(with_request([](auto* m) { m->set_stable_tokens(1, 100); }), "stable_tokens[1]");
}

TEST(ConvertTest, PlanSurvivesTheRoundTripFieldByField) {
  const coppice::StepPlan plan = SamplePlan();
  ASSERT_TRUE(CheckPlan(plan, SampleLimits()).ok()) << CheckPlan(plan, SampleLimits());
  const auto back = PlanFromMessage(PlanToMessage(plan));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->step, 17u);
  EXPECT_EQ(back->token, plan.token);
  EXPECT_EQ(back->position, plan.position);
  EXPECT_EQ(back->slot, plan.slot);
  EXPECT_EQ(back->chain_begin, plan.chain_begin);
  EXPECT_EQ(back->chain, plan.chain);
  EXPECT_EQ(back->table_begin, plan.table_begin);
  EXPECT_EQ(back->table, plan.table);
  EXPECT_EQ(back->bias, plan.bias);
  EXPECT_EQ(back->fetch, plan.fetch);
  ASSERT_EQ(back->pages.size(), 4u);
  for (size_t i = 0; i < plan.pages.size(); ++i) {
    EXPECT_EQ(back->pages[i].block, plan.pages[i].block);
    EXPECT_EQ(back->pages[i].group, plan.pages[i].group);
    EXPECT_EQ(back->pages[i].page, plan.pages[i].page);
  }
  ASSERT_EQ(back->segments.size(), plan.segments.size());
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    EXPECT_EQ(back->segments[i].first_row, plan.segments[i].first_row);
    EXPECT_EQ(back->segments[i].rows, plan.segments[i].rows);
    EXPECT_EQ(back->segments[i].prefix_len, plan.segments[i].prefix_len);
  }
  ASSERT_EQ(back->commits.size(), plan.commits.size());
  for (size_t i = 0; i < plan.commits.size(); ++i) {
    EXPECT_EQ(back->commits[i].source, plan.commits[i].source);
    EXPECT_EQ(back->commits[i].destination, plan.commits[i].destination);
  }
  ASSERT_EQ(back->needs.size(), plan.needs.size());
  for (size_t i = 0; i < plan.needs.size(); ++i) {
    const coppice::RowNeed &got = back->needs[i], &want = plan.needs[i];
    EXPECT_EQ(got.form, want.form);
    EXPECT_EQ(got.row, want.row);
    EXPECT_EQ(got.count, want.count);
    EXPECT_EQ(got.slack, want.slack);
    EXPECT_EQ(got.bias_begin, want.bias_begin);
    EXPECT_EQ(got.bias_end, want.bias_end);
    EXPECT_EQ(got.temperature, want.temperature);
    EXPECT_EQ(got.sums, want.sums);
    EXPECT_EQ(got.raw_sums, want.raw_sums);
    EXPECT_EQ(got.raw_top, want.raw_top);
    EXPECT_EQ(got.cover, want.cover);
    EXPECT_EQ(got.depth, want.depth);
    EXPECT_EQ(got.seed, want.seed);
    EXPECT_EQ(got.path_hash, want.path_hash);
    EXPECT_EQ(got.slots, want.slots);
  }
}

TEST(ConvertTest, AFollowUpPlanSurvivesTheRoundTrip) {
  coppice::StepPlan plan;
  plan.step = 18;
  plan.fetch = {0, 1};
  const auto back = PlanFromMessage(PlanToMessage(plan));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->fetch, plan.fetch);
  EXPECT_EQ(back->chain_begin, std::vector<int32_t>{0});
  EXPECT_TRUE(CheckPlan(*back, SampleLimits()).ok());
}

TEST(ConvertTest, PlanNamesArraysThatDoNotBelongTogether) {
  const auto with = [](auto change) {
    proto::StepPlan message = PlanToMessage(SamplePlan());
    change(&message);
    return PlanFromMessage(message);
  };
  ExpectInvalid(with([](auto* m) { m->add_segment_rows(1); }), "segment_prefix_len");
  ExpectInvalid(with([](auto* m) { m->add_bias(1); }), "bias");
  ExpectInvalid(with([](auto* m) { m->add_commit_source(4); }), "commit_destination");
  ExpectInvalid(with([](auto* m) { m->mutable_needs(1)->set_form(4); }), "needs[1]");
}

TEST(ConvertTest, CheckTokensNamesFieldAndIndex) {
  EXPECT_TRUE(CheckTokens({0, 99}, 100, "prompt").ok());
  const absl::Status status = CheckTokens({0, 100}, 100, "prompt");
  EXPECT_THAT(std::string(status.message()), HasSubstr("prompt[1]: 100"));
}

}  // namespace
}  // namespace coppice::proto
