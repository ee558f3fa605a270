// What a node reports about itself. Every impossible field is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "proto/convert.h"

namespace coppice::proto {
namespace {

proto::Register Replica() {
  proto::Register registration;
  registration.set_role(proto::WORKER_LEADER);
  registration.set_node_id("replica-0");
  registration.set_process_id(5);
  registration.mutable_model()->set_vocab_size(100);
  registration.mutable_model()->add_eos_ids(99);
  for (int rank = 0; rank < 2; ++rank) registration.add_ranks()->set_rank(rank);
  registration.set_kv_blocks_total(10);
  registration.set_kv_block_size(16);
  return registration;
}

TEST(ConvertNodeTest, ARegistrationThatCannotBeIsRefusedByField) {
  EXPECT_TRUE(CheckRegistration(Replica()).ok()) << CheckRegistration(Replica());
  const std::pair<const char*, std::function<void(proto::Register*)>> cases[] = {
      {"role", [](auto* r) { r->clear_role(); }},
      {"node_id", [](auto* r) { r->set_node_id("replica\n0"); }},
      {"process_id: is missing", [](auto* r) { r->clear_process_id(); }},
      {"node_id: 257 bytes", [](auto* r) { r->set_node_id(std::string(257, 'a')); }},
      {"model.vocab_size", [](auto* r) { r->mutable_model()->set_vocab_size(0); }},
      {"model.max_positions", [](auto* r) { r->mutable_model()->set_max_positions(-1); }},
      {"model.eos_ids[0]", [](auto* r) { r->mutable_model()->set_eos_ids(0, 100); }},
      {"model.dtype", [](auto* r) { r->mutable_model()->set_dtype("F\x01"); }},
      {"model.kv_dtype", [](auto* r) { r->mutable_model()->set_kv_dtype("I\x01"); }},
      {"ranks: length", [](auto* r) { r->clear_ranks(); }},
      {"ranks[1]: is rank 0", [](auto* r) { r->mutable_ranks(1)->set_rank(0); }},
      {"kv_blocks_total", [](auto* r) { r->set_kv_blocks_total(-1); }},
      {"kv_blocks_total", [](auto* r) { r->set_kv_blocks_total(INT64_MAX); }},
      {"kv_block_size", [](auto* r) { r->set_kv_block_size(-16); }},
      {"kv_windows: length",
       [](auto* r) {
         for (int i = 0; i < 9; ++i) r->add_kv_windows(16);
       }},
      {"kv_windows", [](auto* r) { r->add_kv_windows(-1); }},
      {"kv_step_tokens", [](auto* r) { r->set_kv_step_tokens(-1); }},
      {"max_rows", [](auto* r) { r->set_max_rows(-1); }},
      {"draft_endpoint", [](auto* r) { r->set_role(proto::DRAFT_NODE); }},
      {"draft_endpoint", [](auto* r) {
         r->set_role(proto::DRAFT_NODE);
         r->set_draft_endpoint("ftp://127.0.0.1:1");
       }}};
  for (const auto& [names, change] : cases) {
    proto::Register registration = Replica();
    change(&registration);
    const absl::Status status = CheckRegistration(registration);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << names;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(names));
  }
}

TEST(ConvertNodeTest, AStatusThatCannotBeIsRefusedByField) {
  proto::NodeStatus good;
  EXPECT_TRUE(CheckNodeStatus(good).ok()) << CheckNodeStatus(good);
  good.set_kv_blocks_total(10);
  good.set_kv_blocks_used(10);
  (*good.mutable_counters()->mutable_rounds_without_draft())["late"] = 3;
  EXPECT_TRUE(CheckNodeStatus(good).ok()) << CheckNodeStatus(good);
  const std::pair<const char*, std::function<void(proto::NodeStatus*)>> cases[] = {
      {"still_s", [](auto* s) { s->set_still_s(NAN); }},
      {"still_s", [](auto* s) { s->set_still_s(-1); }},
      {"longest_stall_s", [](auto* s) { s->set_longest_stall_s(INFINITY); }},
      {"energy_joules", [](auto* s) { s->set_energy_joules(-1); }},
      {"energy_joules", [](auto* s) { s->set_energy_joules(NAN); }},
      {"energy_source", [](auto* s) { s->set_energy_source("rapl\n"); }},
      {"running", [](auto* s) { s->set_running(-1); }},
      {"waiting", [](auto* s) { s->set_waiting(-1); }},
      {"sessions", [](auto* s) { s->set_sessions(-1); }},
      {"kv_blocks_total", [](auto* s) { s->set_kv_blocks_total(-1); }},
      {"kv_blocks_used", [](auto* s) { s->set_kv_blocks_used(11); }},
      {"kv_blocks_cached", [](auto* s) { s->set_kv_blocks_cached(-1); }},
      {"counters.rounds_without_draft",
       [](auto* s) { (*s->mutable_counters()->mutable_rounds_without_draft())["late\n"] = 1; }},
      {"counters.drafts_dropped",
       [](auto* s) { (*s->mutable_counters()->mutable_drafts_dropped())["late\n"] = 1; }},
      {"counters.draft_moves",
       [](auto* s) { (*s->mutable_counters()->mutable_draft_moves())["late\n"] = 1; }},
      {"counters.suffix_nodes_drafted",
       [](auto* s) { (*s->mutable_counters()->mutable_suffix_nodes_drafted())["a\n"] = 1; }},
      {"counters.suffix_nodes_accepted",
       [](auto* s) { (*s->mutable_counters()->mutable_suffix_nodes_accepted())["a\n"] = 1; }},
      {"draft_nodes.node_id", [](auto* s) { s->add_draft_nodes()->set_node_id("a\n"); }},
      {"draft_nodes.sessions", [](auto* s) { s->add_draft_nodes()->set_sessions(-1); }},
      {"draft_nodes.mean_reply_s", [](auto* s) { s->add_draft_nodes()->set_mean_reply_s(NAN); }},
      {"draft_nodes: length",
       [](auto* s) {
         for (int i = 0; i < 5000; ++i) s->add_draft_nodes();
       }},
      {"counters.rounds_without_draft: length", [](auto* s) {
         for (int i = 0; i < 40; ++i)
           (*s->mutable_counters()->mutable_rounds_without_draft())[std::to_string(i)] = 1;
       }}};
  for (const auto& [names, change] : cases) {
    proto::NodeStatus status = good;
    change(&status);
    EXPECT_THAT(std::string(CheckNodeStatus(status).message()), testing::StartsWith(names));
  }
}

TEST(ConvertNodeTest, ATraceThatWouldBreakJsonIsRefusedByField) {
  proto::StepTrace good;
  proto::TraceSpan* span = good.add_spans();
  span->set_name("next draft");
  span->set_begin_s(-0.5);
  span->set_seconds(1);
  (*span->mutable_args())["draft_us"] = 3;
  EXPECT_TRUE(CheckStepTrace(good).ok()) << CheckStepTrace(good);
  const std::pair<const char*, std::function<void(proto::TraceSpan*)>> cases[] = {
      {"name", [](auto* s) { s->set_name("a\"b"); }},
      {"name", [](auto* s) { s->set_name("a\\b"); }},
      {"name", [](auto* s) { s->set_name(std::string(300, 'a')); }},
      {"track", [](auto* s) { s->set_track(-2); }},
      {"begin_s", [](auto* s) { s->set_begin_s(NAN); }},
      {"seconds", [](auto* s) { s->set_seconds(-1); }},
      {"seconds", [](auto* s) { s->set_seconds(INFINITY); }},
      {"args", [](auto* s) { (*s->mutable_args())["rows"] = NAN; }},
      {"args", [](auto* s) { (*s->mutable_args())["ro\"ws"] = 1; }},
      {"args: length", [](auto* s) {
         for (int i = 0; i < 40; ++i) (*s->mutable_args())[std::to_string(i)] = 1;
       }}};
  for (const auto& [names, change] : cases) {
    proto::StepTrace trace = good;
    change(trace.mutable_spans(0));
    EXPECT_THAT(std::string(CheckStepTrace(trace).message()), testing::StartsWith(names));
  }
}

}  // namespace
}  // namespace coppice::proto
