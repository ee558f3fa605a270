// Any bytes as a message of another process: refused with InvalidArgument and a readable message, or
// accepted; then the struct holds its contract, and converts back to what the message said. The first
// byte of an input chooses the message. fuzz.sh runs it with libFuzzer; a normal test runs the seeds.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/convert.h"
#include "tests/proto/follow_plan.h"
#include "tests/proto/sample_inputs.h"
#include "tests/testing/fuzz_require.h"

namespace coppice::proto {
namespace {

using test::Require;

void CheckRefusal(const absl::Status& status) {
  Require(status.code() == absl::StatusCode::kInvalidArgument, "refused as " + status.ToString());
  Require(!status.message().empty(), "refused without a message");
  Require(status.message().size() < 2000, "the message of a refusal is too long");
  for (const char c : status.message())
    Require(absl::ascii_isprint(c),
            "the message of a refusal cannot be printed: " + absl::CHexEscape(status.message()));
}

// The message as a sender of this version would write it.
template <typename Message>
std::string Known(Message message) {
  message.DiscardUnknownFields();
  return message.SerializeAsString();
}

template <typename Message>
void RequireSame(const Message& got, const Message& message) {
  Require(got.SerializeAsString() == Known(message),
          "another message comes back:\n" + got.DebugString() + "of\n" + message.DebugString());
}

void CheckDecoding(proto::Decoding message) {
  const auto params = DecodingFromMessage(message);
  if (!params.ok()) return CheckRefusal(params.status());
  Require(decoding::CheckParameters(*params).ok(), "accepts parameters outside their ranges");
  Require(params->method != nullptr, "accepts no method");
  const proto::Decoding back = DecodingToMessage(*params);
  // The parameters come in any order.
  for (int i = 0; i < back.parameters_size(); ++i) {
    for (int k = i + 1; k < message.parameters_size(); ++k) {
      if (message.parameters(k).name() == back.parameters(i).name())
        message.mutable_parameters()->SwapElements(i, k);
    }
  }
  RequireSame(back, message);
}

void CheckForest(const proto::Forest& message) {
  const auto forest = ForestFromMessage(message, kSampleVocabulary);
  if (!forest.ok()) return CheckRefusal(forest.status());
  Require(forest->Validate(kSampleVocabulary).ok(), "accepts a wrong forest");
  for (int i = 0; i < forest->size(); ++i)
    Require(forest->parent[i] < TreePlace(NodeId{i}) && forest->Has(forest->parent[i]),
            "a wrong parent");
  RequireSame(ForestToMessage(*forest), message);
}

void CheckDraftRequest(proto::DraftRequest message) {
  const auto request = DraftRequestFromMessage(message, kSampleVocabulary);
  if (!request.ok()) return CheckRefusal(request.status());
  const size_t roots = RootHashes(request->roots, /*shared_hash=*/1).size();
  Require(roots == request->state.root_score.size(), "roots without a score");
  for (const int root : request->state.slot_root)
    Require(static_cast<size_t>(root) < roots, "a slot of no root");
  message.mutable_state();  // without a state it is a request for no root
  RequireSame(DraftRequestToMessage(*request), message);
}

void CheckPlanMessage(const proto::StepPlan& message) {
  const auto plan = PlanFromMessage(message);
  if (!plan.ok()) return CheckRefusal(plan.status());
  RequireSame(PlanToMessage(*plan), message);
  if (const absl::Status status = CheckPlan(*plan, SampleLimits()); !status.ok())
    return CheckRefusal(status);
  FollowPlan(*plan, SampleLimits());
}

void CheckDraftReply(const proto::DraftReply& message) {
  if (const absl::Status status = CheckDraftTimes(message); !status.ok()) CheckRefusal(status);
  if (const auto joules = DraftEnergy(message))
    Require(std::isfinite(*joules) && *joules >= 0, "impossible energy");
}

void AddScores(const std::vector<coppice::TokenScore>& scores,
               google::protobuf::RepeatedPtrField<proto::TokenScore>* messages) {
  for (const coppice::TokenScore& score : scores) *messages->Add() = ScoreToMessage(score);
}

proto::SequenceUpdate ProgressToMessage(const SequenceProgress& progress) {
  proto::SequenceUpdate message;
  message.mutable_stable_tokens()->Assign(progress.stable_tokens.begin(),
                                          progress.stable_tokens.end());
  message.set_finished(progress.finished);
  AddScores(progress.stable_scores, message.mutable_stable_scores());
  AddScores(progress.prompt_scores, message.mutable_prompt_scores());
  for (size_t i = 0; i < progress.hypotheses.size(); ++i) {
    proto::Hypothesis* hypothesis = message.add_hypotheses();
    *hypothesis = HypothesisToMessage(progress.hypotheses[i]);
    AddScores(progress.hypothesis_scores.at(i), hypothesis->mutable_scores());
  }
  if (progress.stats) *message.mutable_stats() = StatsToMessage(*progress.stats);
  if (progress.energy_joules) message.set_energy_joules(*progress.energy_joules);
  return message;
}

void CheckRounds(const proto::SequenceUpdate& message) {
  for (const proto::RoundTimes& round : message.rounds()) {
    if (!round.has_forest()) continue;
    const auto forest = RoundForestFromMessage(round.forest(), kSampleVocabulary);
    if (!forest.ok()) {
      CheckRefusal(forest.status());
    } else {
      RequireSame(RoundForestToMessage(*forest), round.forest());
    }
  }
}

void CheckProgress(proto::SequenceUpdate message, const ProgressLimits& limits) {
  CheckRounds(message);
  const auto progress = ProgressFromMessage(message, limits);
  if (!progress.ok()) return CheckRefusal(progress.status());
  Require(progress->finished == !progress->hypotheses.empty(), "hypotheses before the end");
  // Fields that are read elsewhere.
  message.clear_sequence_id();
  message.clear_error_code();
  message.clear_error_message();
  message.clear_rounds();
  if (!message.finished()) message.clear_stats();
  RequireSame(ProgressToMessage(*progress), message);
}

void CheckNode(const absl::Status& status) {
  if (!status.ok()) CheckRefusal(status);
}

template <typename Message>
Message Parsed(const std::string& bytes, bool* parsed) {
  const google::protobuf::LogSilencer silencer;  // Protobuf logs bad UTF-8
  Message message;
  *parsed = message.ParseFromString(bytes);
  return message;
}

template <typename Message, typename Check>
void Fuzz(const std::string& bytes, Check check) {
  bool parsed = false;
  const Message message = Parsed<Message>(bytes, &parsed);
  if (parsed) check(message);
}

void FuzzOne(SampleKind kind, const std::string& bytes) {
  switch (kind) {
    case SampleKind::kDecoding:
      return Fuzz<proto::Decoding>(bytes, CheckDecoding);
    case SampleKind::kForest:
      return Fuzz<proto::Forest>(bytes, CheckForest);
    case SampleKind::kDraftRequest:
      return Fuzz<proto::DraftRequest>(bytes, CheckDraftRequest);
    case SampleKind::kPlan:
      return Fuzz<proto::StepPlan>(bytes, CheckPlanMessage);
    case SampleKind::kDraftReply:
      return Fuzz<proto::DraftReply>(bytes, CheckDraftReply);
    case SampleKind::kUpdate:
      return Fuzz<proto::SequenceUpdate>(
          bytes, [](const auto& message) { CheckProgress(message, SampleProgressLimits()); });
    case SampleKind::kScoredUpdate:
      return Fuzz<proto::SequenceUpdate>(
          bytes, [](const auto& message) { CheckProgress(message, ScoredProgressLimits()); });
    case SampleKind::kRegister:
      return Fuzz<proto::Register>(
          bytes, [](const auto& message) { CheckNode(CheckRegistration(message)); });
    case SampleKind::kNodeStatus:
      return Fuzz<proto::NodeStatus>(
          bytes, [](const auto& message) { CheckNode(CheckNodeStatus(message)); });
    case SampleKind::kKinds:
      return;
  }
}

}  // namespace
}  // namespace coppice::proto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using coppice::proto::SampleKind;
  if (size == 0) return 0;
  const auto kind = static_cast<SampleKind>(data[0] % static_cast<uint8_t>(SampleKind::kKinds));
  coppice::proto::FuzzOne(kind, std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
