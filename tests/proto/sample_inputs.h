// Valid messages as inputs of convert_fuzz.cc: a byte that chooses the message, then its bytes.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>

#include "tests/proto/sample_messages.h"

namespace coppice::proto {

enum class SampleKind : uint8_t {
  kDecoding,
  kForest,
  kDraftRequest,
  kPlan,
  kDraftReply,
  kUpdate,
  kScoredUpdate,
  kRegister,
  kNodeStatus,
  kKinds
};

inline constexpr int kSampleVocabulary = 100;
inline ProgressLimits SampleProgressLimits() { return {kSampleVocabulary, 8, 2, 2}; }
inline ProgressLimits ScoredProgressLimits() {
  ProgressLimits limits = SampleProgressLimits();
  limits.alternatives = 2;
  limits.prompt_scores = 2;
  return limits;
}

inline proto::SequenceUpdate SampleUpdate(bool scored) {
  proto::SequenceUpdate update;
  update.add_stable_tokens(4);
  update.set_finished(true);
  *update.add_hypotheses() = HypothesisToMessage({{4, 5, 2}, -1.25, -0.5, true});
  *update.add_hypotheses() = HypothesisToMessage({{4, 5, 7, 1}, -2.5, -0.75, false});
  DecodingStats stats;
  stats.method = "gumbel_coupling";
  stats.lossless = true;
  stats.rounds = 4;
  stats.plain_rounds = 1;
  stats.accepted_by_layer = {3, 2};
  stats.draft_ms = 1.5;
  *update.mutable_stats() = StatsToMessage(stats);
  update.set_energy_joules(2.5);
  if (!scored) return update;
  const coppice::TokenScore score = {-1.5, {{7, -0.25}, {9, -2.0}}};
  for (int i = 0; i < 2; ++i) *update.add_prompt_scores() = ScoreToMessage(score);
  *update.add_stable_scores() = ScoreToMessage(score);
  for (proto::Hypothesis& hypothesis : *update.mutable_hypotheses()) {
    for (int i = 0; i < hypothesis.tokens_size(); ++i)
      *hypothesis.add_scores() = ScoreToMessage({-INFINITY, {}});
  }
  return update;
}

inline proto::DraftReply SampleReply() {
  proto::DraftReply reply;
  reply.set_session_id(7);
  reply.set_draft_ms(1.5);
  reply.set_model_ms(1.25);
  reply.set_energy_joules(0.5);
  return reply;
}

inline proto::Register SampleRegistration(proto::NodeRole role) {
  proto::Register registration;
  registration.set_role(role);
  registration.set_node_id("node-0");
  registration.set_process_id(5);
  if (role == proto::DRAFT_NODE) registration.set_draft_endpoint("tcp://10.0.0.1:7100");
  proto::ModelInfo* model = registration.mutable_model();
  model->set_path("/models/tiny");
  model->set_vocab_size(kSampleVocabulary);
  model->set_max_positions(64);
  model->set_dtype("BF16");
  model->set_kv_dtype("I8");
  model->add_eos_ids(2);
  for (int rank = 0; rank < 2; ++rank) {
    proto::RankInfo* info = registration.add_ranks();
    info->set_rank(rank);
    info->set_host("host");
    info->set_pid(100 + rank);
  }
  registration.set_kv_blocks_total(8);
  registration.set_kv_block_size(16);
  registration.set_backend("cpu");
  return registration;
}

inline proto::NodeStatus SampleStatus() {
  proto::NodeStatus status;
  status.set_step(9);
  status.set_running(2);
  status.set_waiting(1);
  status.set_kv_blocks_used(3);
  status.set_kv_blocks_total(8);
  status.set_kv_blocks_cached(1);
  (*status.mutable_counters()->mutable_rounds_without_draft())["late"] = 2;
  status.set_working(true);
  status.set_still_s(0.5);
  status.set_longest_stall_s(0.75);
  status.set_energy_joules(20.5);
  status.set_energy_source("rapl");
  (*status.mutable_counters()->mutable_draft_moves())["slow"] = 1;
  (*status.mutable_counters()->mutable_suffix_nodes_drafted())["prompt"] = 7;
  (*status.mutable_counters()->mutable_suffix_nodes_accepted())["prompt"] = 3;
  status.mutable_suffix_drafts()->set_used(true);
  status.mutable_suffix_drafts()->set_index_bytes(4096);
  proto::DraftNodeUse* use = status.add_draft_nodes();
  use->set_node_id("draft-0");
  use->set_sessions(2);
  use->set_mean_reply_s(0.01);
  return status;
}

// By name. All are accepted.
inline std::map<std::string, std::string> SampleInputs() {
  const auto input = [](SampleKind kind, const google::protobuf::Message& message) {
    return std::string(1, static_cast<char>(kind)) + message.SerializeAsString();
  };
  return {
      {"decoding", input(SampleKind::kDecoding, DecodingToMessage(SampleParams()))},
      {"forest", input(SampleKind::kForest, ForestToMessage(SampleForest()))},
      {"draft_request", input(SampleKind::kDraftRequest, DraftRequestToMessage(SampleRequest()))},
      {"plan", input(SampleKind::kPlan, PlanToMessage(SamplePlan()))},
      {"draft_reply", input(SampleKind::kDraftReply, SampleReply())},
      {"update", input(SampleKind::kUpdate, SampleUpdate(/*scored=*/false))},
      {"scored_update", input(SampleKind::kScoredUpdate, SampleUpdate(/*scored=*/true))},
      {"worker", input(SampleKind::kRegister, SampleRegistration(proto::WORKER_LEADER))},
      {"draft_node", input(SampleKind::kRegister, SampleRegistration(proto::DRAFT_NODE))},
      {"node_status", input(SampleKind::kNodeStatus, SampleStatus())},
  };
}

}  // namespace coppice::proto
