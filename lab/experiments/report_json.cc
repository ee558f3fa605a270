#include <cmath>
#include <nlohmann/json.hpp>
#include <variant>

#include "decoding/method.h"
#include "decoding/parameter.h"
#include "lab/experiments/report.h"
#include "lab/experiments/sampling_text.h"

namespace coppice::lab {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson NumberOrNull(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson ToJson(const Estimate& estimate) {
  if (std::isnan(estimate.value)) return nullptr;
  return {{"value", estimate.value},
          {"se", NumberOrNull(estimate.standard_error)},
          {"count", estimate.count}};
}

OrderedJson SamplingJson(const sampling::SamplingParams& sampling) {
  OrderedJson json = {{"text", SamplingText(sampling)}};
  decoding::DecodingParams params;
  params.sampling = sampling;
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (row.group != decoding::ParameterGroup::kSampling || !row.scalar()) continue;
    std::visit([&](auto value) { json[row.name] = value; }, row.member.get(params));
  }
  json["mode"] = std::string(sampling::SamplingScopeName(sampling.mode));
  return json;
}

OrderedJson CellJson(const MeasuredCell& measured) {
  const Cell& cell = measured.cell;
  const CellResult& result = measured.result;
  OrderedJson json = {{"method", std::string(decoding::MethodName(cell.params))},
                      {"options", cell.options},
                      {"decoding", std::string(sampling::DecodingKindName(cell.params.kind))},
                      {"width", cell.params.beam_width},
                      {"draft_width", cell.draft_width},
                      {"draft_depth", cell.draft_depth},
                      {"sampling", SamplingJson(cell.params.sampling)}};
  const decoding::MethodRow* row = cell.params.method;
  if (!cell.params.plain && row != nullptr) {
    json["distribution"] = std::string(row->distribution);
    json["lossless"] = row->lossless;
    json["source"] = std::string(row->source);
    json["joint_sampling"] = row->joint_sampling;
    json["reproducible"] = row->reproducible;
    json["sends"] = std::string(row->sends);
  }
  json["block_efficiency"] = ToJson(result.block_efficiency);
  json["acceptance_by_layer"] = OrderedJson::array();
  for (const Estimate& layer : result.acceptance) {
    json["acceptance_by_layer"].push_back(ToJson(layer));
  }
  json["optimum"] = {{"iid", ToJson(result.optimum_iid)},
                     {"without_replacement", ToJson(result.optimum_without_replacement)}};
  json["accepted_width"] = ToJson(result.accepted_width);
  json["output_width"] = ToJson(result.width);
  json["distinct_beams"] = ToJson(result.distinct_beams);
  json["log_likelihood_per_token"] = ToJson(result.log_likelihood);
  json["score_per_token"] = ToJson(result.score);
  json["tokens"] = ToJson(result.tokens);
  json["nodes_per_pass"] = ToJson(result.nodes_per_pass);
  json["bytes_per_accepted_token"] = ToJson(result.bytes_per_accepted);
  json["seconds"] = result.seconds;
  return json;
}

OrderedJson NodeJson(const NodeResult& result) {
  OrderedJson json = {
      {"sampling", result.sampling}, {"drafts", result.drafts}, {"nodes", result.nodes}};
  if (const auto sampling = ParseSamplingText(result.sampling); sampling.ok())
    json["sampling"] = SamplingJson(*sampling);
  json["columns"] = OrderedJson::array();
  for (const NodeColumn& column : result.columns) {
    json["columns"].push_back({{"name", column.name},
                               {"closed_form", column.closed_form},
                               {"optimum", column.optimum},
                               {"acceptance", ToJson(column.acceptance)},
                               {"gap", ToJson(column.gap)}});
  }
  return json;
}

}  // namespace

std::string ReportJson(const LabReport& report) {
  OrderedJson json = {{"format_version", 2}, {"experiment", report.experiment}};
  json["source"] = OrderedJson::object();
  for (const auto& [name, value] : report.source) json["source"][name] = value;
  json["seed"] = report.seed;
  json["sequences"] = report.sequences;
  json["cells"] = OrderedJson::array();
  for (const MeasuredCell& cell : report.cells) json["cells"].push_back(CellJson(cell));
  json["skipped"] = OrderedJson::array();
  for (const SkippedCell& cell : report.skipped) {
    json["skipped"].push_back({{"cell", cell.name}, {"reason", cell.reason}});
  }
  json["nodes"] = OrderedJson::array();
  for (const NodeResult& result : report.nodes) json["nodes"].push_back(NodeJson(result));
  return json.dump(1) + "\n";
}

}  // namespace coppice::lab
