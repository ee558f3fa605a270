#include "lab/answers/answer.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"

namespace coppice::answers {
namespace {

absl::StatusOr<decoding::DraftForest> NextForest(const AnswerRequest& request, int round,
                                                 lab::LocalReplica* replica) {
  const decoding::BeamDecoder& decoder = replica->decoder();
  const int depth = std::min(request.forest_depth, decoder.max_useful_depth());
  // The first round decides the layer below the prompt; it has no draft.
  const bool late = round == 0 || (request.late > 0 && round % request.late == 0);
  if (request.forest_width > 0 && depth > 0 && !late) {
    return replica->Draft(request.forest_width, depth);
  }
  return decoding::DraftForest::Empty(static_cast<int>(decoder.roots().size()));
}

absl::Status RunRounds(const AnswerRequest& request, lab::LocalReplica* replica, Answer* answer) {
  const decoding::BeamDecoder& decoder = replica->decoder();
  for (int round = 0; !decoder.finished(); ++round) {
    COPPICE_ASSIGN_OR_RETURN(decoding::DraftForest forest, NextForest(request, round, replica));
    COPPICE_ASSIGN_OR_RETURN(const decoding::Verdict verdict, replica->Round(std::move(forest)));
    answer->layers.push_back(verdict.stats.layers);
    answer->drafted_nodes.push_back(verdict.stats.drafted_nodes);
    answer->accepted_nodes.push_back(verdict.stats.accepted_nodes);
    answer->stable_prefix.push_back(static_cast<int>(decoder.StablePrefix().size()));
  }
  answer->hypotheses = decoder.Result();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Answer> RunRequest(const AnswerRequest& request, lab::LocalReplica* replica) {
  Answer answer;
  const auto params = ParamsOf(request);
  absl::Status status = params.status();
  if (status.ok()) status = replica->Open(request.prompt, *params, request.forest_width > 0);
  if (status.ok()) {
    const absl::Cleanup close = [replica] { replica->Close(); };
    status = RunRounds(request, replica, &answer);
  }
  if (status.ok()) return answer;
  if (status.code() != absl::StatusCode::kInvalidArgument) return status;
  answer = Answer();
  answer.refused = status;
  return answer;
}

}  // namespace coppice::answers
