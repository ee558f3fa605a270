#include "coordinator/request/round_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "coordinator/request/response_json.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

double Milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

Json Paths(const std::vector<decoding::PathId>& paths) {
  Json list = Json::array();
  for (const decoding::PathId path : paths) list.push_back(Index(path));
  return list;
}

class TokenMember {
 public:
  explicit TokenMember(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void Add(TokenId token, Json* json) const {
    (*json)["token"] = token;
    (*json)["text"] = TokenText({tokenizer_.TokenBytes(token, /*skip_special=*/false), ""});
  }

 private:
  const tokenizer::Tokenizer& tokenizer_;
};

Json Nodes(const decoding::RoundForest& forest, const TokenMember& token) {
  Json nodes = Json::array();
  for (int i = 0; i < forest.nodes.size(); ++i) {
    Json node;
    node["parent"] = forest.nodes.parent[i].code();
    token.Add(forest.nodes.token[i], &node);
    if (!forest.log_probs.empty() && std::isfinite(forest.log_probs[i]))
      node["log_prob"] = forest.log_probs[i];
    if (forest.node_path[i] != decoding::kNoPath) node["path"] = Index(forest.node_path[i]);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

Json NewPaths(const decoding::RoundForest& forest, const TokenMember& token) {
  Json paths = Json::array();
  for (size_t i = 0; i < forest.path_token.size(); ++i) {
    Json path;
    path["path"] = forest.first_path + static_cast<int>(i);
    path["parent"] = Index(forest.path_parent[i]);
    token.Add(forest.path_token[i], &path);
    paths.push_back(std::move(path));
  }
  return paths;
}

Json Beams(const decoding::RoundForest& forest) {
  Json beams = Json::array();
  for (const decoding::LayerOutput& output : forest.outputs) {
    Json beam;
    beam["path"] = Index(output.path);
    beam["log_score"] = ScorePart(output.log_score);
    beam["finished"] = output.finished;
    beams.push_back(std::move(beam));
  }
  return beams;
}

}  // namespace

std::string RoundJson(const ShownRound& shown, const tokenizer::Tokenizer& tokenizer) {
  const auto& [origin, times, forest] = shown;
  const TokenMember token(tokenizer);
  Json round;
  round["prompt"] = origin.prompt;
  round["sample"] = origin.sample;
  round["run"] = origin.run;
  round["round"] = times.round();
  round["time_ms"] = Milliseconds(times.end_s());
  round["round_ms"] = Milliseconds(times.round_s());
  round["draft_wait_ms"] = Milliseconds(times.draft_wait_s());
  round["draft_ms"] = Milliseconds(times.draft_s());
  round["forward_ms"] = Milliseconds(times.forward_s());
  round["decision_ms"] = Milliseconds(times.commit_s());
  if (times.draft_source() != proto::NO_DRAFT)
    round["draft_source"] = times.draft_source() == proto::SUFFIX_DRAFT ? "suffix" : "node";
  round["rows"] = times.rows();
  round["layers"] = times.layers();
  round["roots"] = Paths(forest.roots);
  round["nodes"] = Nodes(forest, token);
  round["paths"] = NewPaths(forest, token);
  round["beams"] = Beams(forest);
  if (forest.last) round["truncated"] = true;
  return round.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace coppice::coordinator
