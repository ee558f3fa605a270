#include <cmath>

#include "base/status.h"
#include "proto/convert.h"
#include "proto/field_checks.h"

namespace coppice::proto {

using wire::BadEntry;
using wire::CheckEntries;
using wire::CheckLength;
using wire::CheckRange;
using wire::Fill;

namespace {

void FillPaths(const std::vector<decoding::PathId>& paths,
               google::protobuf::RepeatedField<int32_t>* sent) {
  sent->Reserve(static_cast<int>(paths.size()));
  for (const decoding::PathId path : paths) sent->Add(Index(path));
}

std::vector<decoding::PathId> PathsOf(const google::protobuf::RepeatedField<int32_t>& sent) {
  std::vector<decoding::PathId> paths;
  paths.reserve(sent.size());
  for (const int32_t path : sent) paths.push_back(decoding::PathId{path});
  return paths;
}

absl::Status CheckNodes(const proto::RoundForest& message, int vocab_size, int64_t paths) {
  const int nodes = message.tokens_size();
  COPPICE_RETURN_IF_ERROR(CheckEntries("tokens", message.tokens(), 0, vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckLength("parents", message.parents_size(), nodes));
  for (int i = 0; i < nodes; ++i) {
    const int32_t parent = message.parents(i);
    if (parent < -message.roots_size() || parent >= i)
      return BadEntry("parents", i, absl::StrCat(parent, " is neither a root nor an earlier node"));
  }
  if (message.log_probs_size() > 0)
    COPPICE_RETURN_IF_ERROR(CheckLength("log_probs", message.log_probs_size(), nodes));
  for (int i = 0; i < message.log_probs_size(); ++i) {
    if (!(message.log_probs(i) <= 1e-9)) return BadEntry("log_probs", i, "is above 0");
  }
  COPPICE_RETURN_IF_ERROR(CheckLength("node_paths", message.node_paths_size(), nodes));
  for (int i = 0; i < nodes; ++i) {
    const int32_t path = message.node_paths(i);
    if (path != -1 && (path < message.first_path() || path >= paths))
      return BadEntry("node_paths", i, absl::StrCat(path, " is not a path of this round"));
  }
  return absl::OkStatus();
}

absl::Status Check(const proto::RoundForest& message, int vocab_size) {
  COPPICE_RETURN_IF_ERROR(CheckRange("first_path", int64_t{message.first_path()}, 1, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("roots: length", int64_t{message.roots_size()}, 0, int64_t{decoding::kMostBeams}));
  COPPICE_RETURN_IF_ERROR(CheckEntries("roots", message.roots(), 0, message.first_path()));
  const int64_t paths = int64_t{message.first_path()} + message.path_tokens_size();
  COPPICE_RETURN_IF_ERROR(CheckNodes(message, vocab_size, paths));
  COPPICE_RETURN_IF_ERROR(CheckEntries("path_tokens", message.path_tokens(), 0, vocab_size));
  COPPICE_RETURN_IF_ERROR(
      CheckLength("path_parents", message.path_parents_size(), message.path_tokens_size()));
  for (int i = 0; i < message.path_parents_size(); ++i) {
    const int32_t parent = message.path_parents(i);
    if (parent < 0 || parent >= message.first_path() + int64_t{i})
      return BadEntry("path_parents", i, absl::StrCat(parent, " is not an earlier path"));
  }
  COPPICE_RETURN_IF_ERROR(CheckEntries("outputs", message.outputs(), 0, paths));
  COPPICE_RETURN_IF_ERROR(
      CheckLength("log_scores", message.log_scores_size(), message.outputs_size()));
  for (int i = 0; i < message.log_scores_size(); ++i) {
    if (std::isnan(message.log_scores(i))) return BadEntry("log_scores", i, "is NaN");
  }
  return CheckLength("finished", message.finished_size(), message.outputs_size());
}

}  // namespace

proto::RoundForest RoundForestToMessage(const decoding::RoundForest& round) {
  proto::RoundForest message;
  FillPaths(round.roots, message.mutable_roots());
  Fill(round.nodes.token, message.mutable_tokens());
  for (const TreePlace parent : round.nodes.parent) message.add_parents(parent.code());
  Fill(round.log_probs, message.mutable_log_probs());
  FillPaths(round.node_path, message.mutable_node_paths());
  message.set_first_path(round.first_path);
  FillPaths(round.path_parent, message.mutable_path_parents());
  Fill(round.path_token, message.mutable_path_tokens());
  for (const decoding::LayerOutput& output : round.outputs) {
    message.add_outputs(Index(output.path));
    message.add_log_scores(output.log_score);
    message.add_finished(output.finished);
  }
  message.set_last(round.last);
  return message;
}

absl::StatusOr<decoding::RoundForest> RoundForestFromMessage(const proto::RoundForest& message,
                                                             int vocab_size) {
  COPPICE_RETURN_IF_ERROR(Check(message, vocab_size));
  decoding::RoundForest round;
  round.roots = PathsOf(message.roots());
  round.nodes.num_roots = message.roots_size();
  for (int i = 0; i < message.tokens_size(); ++i)
    round.nodes.Add(TreePlace::FromCode(message.parents(i)), message.tokens(i));
  round.log_probs.assign(message.log_probs().begin(), message.log_probs().end());
  round.node_path = PathsOf(message.node_paths());
  round.first_path = message.first_path();
  round.path_parent = PathsOf(message.path_parents());
  round.path_token.assign(message.path_tokens().begin(), message.path_tokens().end());
  for (int i = 0; i < message.outputs_size(); ++i) {
    round.outputs.push_back(
        {decoding::PathId{message.outputs(i)}, message.log_scores(i), message.finished(i)});
  }
  round.last = message.last();
  return round;
}

}  // namespace coppice::proto
