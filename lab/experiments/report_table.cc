#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "decoding/method.h"
#include "lab/experiments/report.h"
#include "lab/experiments/sampling_text.h"

namespace coppice::lab {
namespace {

using Row = std::vector<std::string>;

std::string Show(const Estimate& estimate, int digits) {
  if (std::isnan(estimate.value)) return "-";
  std::string text = absl::StrFormat("%.*f", digits, estimate.value);
  if (!std::isnan(estimate.standard_error)) {
    absl::StrAppend(&text, absl::StrFormat("±%.*f", digits, estimate.standard_error));
  }
  return text;
}

size_t Columns(const std::string& text) {  // characters, not bytes
  size_t count = 0;
  for (unsigned char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

std::string Align(const std::vector<Row>& rows) {
  std::vector<size_t> width;
  for (const Row& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], Columns(row[c]));
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      absl::StrAppend(&line, row[c], std::string(width[c] - Columns(row[c]) + 2, ' '));
    }
    absl::StrAppend(&out, line.substr(0, line.find_last_not_of(' ') + 1), "\n");
  }
  return out;
}

Row CellRow(const MeasuredCell& measured) {
  const Cell& cell = measured.cell;
  const CellResult& r = measured.result;
  std::string acceptance;
  for (const Estimate& layer : r.acceptance) {
    absl::StrAppend(&acceptance, acceptance.empty() ? "" : " ", Show(layer, 2));
  }
  const std::string shape =
      cell.draft_width > 0 ? absl::StrCat(cell.draft_width, "x", cell.draft_depth) : "-";
  const std::string optimum =
      absl::StrCat(Show(r.optimum_iid, 3), "/", Show(r.optimum_without_replacement, 3));
  return {cell.options.empty() ? std::string(decoding::MethodName(cell.params))
                               : absl::StrCat(decoding::MethodName(cell.params), " ", cell.options),
          std::string(sampling::DecodingKindName(cell.params.kind)),
          absl::StrCat(cell.params.beam_width),
          shape,
          SamplingText(cell.params.sampling),
          Show(r.block_efficiency, 2),
          acceptance.empty() ? "-" : acceptance,
          std::isnan(r.optimum_iid.value) ? "-" : optimum,
          Show(r.accepted_width, 2),
          Show(r.width, 2),
          Show(r.distinct_beams, 2),
          Show(r.log_likelihood, 3),
          Show(r.score, 3),
          Show(r.nodes_per_pass, 1),
          Show(r.bytes_per_accepted, 0)};
}

std::string NodesTable(const std::vector<NodeResult>& nodes) {
  std::string out;
  for (const NodeResult& result : nodes) {
    std::vector<Row> rows = {{"", "acceptance", "below its optimum", ""}};
    for (const NodeColumn& column : result.columns) {
      rows.push_back({column.name, Show(column.acceptance, 4), Show(column.gap, 4),
                      column.closed_form ? "closed form" : "measured"});
    }
    absl::StrAppend(&out, "\n", result.sampling, ", ", result.drafts, " drafts, ", result.nodes,
                    " nodes\n", Align(rows));
  }
  return out;
}

}  // namespace

std::string ReportTable(const LabReport& report) {
  std::string out = absl::StrCat("experiment ", report.experiment, ", seed ", report.seed, ", ",
                                 report.sequences, " sequences");
  for (const auto& [name, value] : report.source) absl::StrAppend(&out, ", ", name, " ", value);
  absl::StrAppend(&out, "\n");
  if (!report.cells.empty()) {
    std::vector<Row> rows = {{"method", "decoding", "W", "draft", "sampling", "layers/pass",
                              "acceptance by layer", "optimum iid/wor", "accepted", "width",
                              "distinct", "loglik/token", "score/token", "nodes/pass",
                              "bytes/accepted"}};
    for (const MeasuredCell& cell : report.cells) rows.push_back(CellRow(cell));
    absl::StrAppend(&out, Align(rows));
  }
  absl::StrAppend(&out, NodesTable(report.nodes));
  for (const SkippedCell& cell : report.skipped) {
    absl::StrAppend(&out, "left out: ", cell.name, ": ", cell.reason, "\n");
  }
  return out;
}

}  // namespace coppice::lab
