// Measurements of the laboratory for which a closed form or an identity gives the right value.
// Seeds are fixed. Comparisons use 4.5 standard errors, so each has a false alarm of 1e-5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/experiments/cell.h"
#include "lab/experiments/grid.h"
#include "lab/experiments/node_study.h"
#include "lab/experiments/report.h"
#include "lab/experiments/row_model.h"

namespace coppice::lab {
namespace {

constexpr double kErrors = 4.5;

std::unique_ptr<ModelPair> Tables(double noise) {
  TableOptions options;
  options.vocab_size = 24;
  options.noise = noise;
  return MakeTablePair(MakeRandomTables(options));
}

NodeStudyOptions Study() {
  NodeStudyOptions options;
  options.base.max_tokens = 12;
  options.sequences = 60;
  options.nodes = 240;
  options.repeats = 40;
  options.samplings = {"T=1"};
  return options;
}

const NodeColumn& Column(const NodeResult& result, const std::string& name) {
  for (const NodeColumn& column : result.columns) {
    if (column.name == name) return column;
  }
  ADD_FAILURE() << "no column " << name;
  return result.columns[0];
}

// The error of measuring with 0/1 trials at `nodes` given nodes, `repeats` at each.
double ErrorOfMeasuring(double acceptance, const NodeStudyOptions& options) {
  return std::sqrt(acceptance * (1 - acceptance) / (options.nodes * options.repeats));
}

TEST(NodeStudyTest, VerifiersAcceptAsOftenAsTheirClosedForms) {
  NodeStudyOptions options = Study();
  options.drafts = {1, 3};
  options.methods = {"rejection", "recursive_rejection", "k_seq", "greedy_multi_draft"};
  const auto pair = Tables(0.7);
  const auto results = RunNodeStudy(options, pair.get(), [](const std::string&) {});
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 2u);
  const auto expect = [&](int which, const char* measured, const char* closed_form) {
    const double want = Column((*results)[which], closed_form).acceptance.value;
    EXPECT_NEAR(Column((*results)[which], measured).acceptance.value, want,
                kErrors * ErrorOfMeasuring(want, options))
        << measured;
  };
  expect(0, "rejection", "overlap");
  expect(1, "recursive_rejection", "RRS");
  expect(1, "k_seq", "K-SEQ");
  expect(1, "greedy_multi_draft", "alpha_greedy");
  // The comparison can detect a difference: three drafts are accepted more often than one.
  const double one = Column((*results)[0], "overlap").acceptance.value;
  EXPECT_GT(Column((*results)[1], "recursive_rejection").acceptance.value,
            one + kErrors * ErrorOfMeasuring(one, options));
}

TEST(NodeStudyTest, NothingIsAboveItsOptimum) {
  NodeStudyOptions options = Study();
  options.repeats = 4;
  options.drafts = {2, 4};
  const auto pair = Tables(1.2);
  const auto results = RunNodeStudy(options, pair.get(), [](const std::string&) {});
  ASSERT_TRUE(results.ok()) << results.status();
  for (const NodeResult& result : *results) {
    for (const NodeColumn& column : result.columns) {
      if (column.optimum.empty()) continue;
      EXPECT_GT(column.gap.value,
                column.closed_form ? -1e-9 : -kErrors * ErrorOfMeasuring(0.5, options))
          << column.name;
    }
    EXPECT_GE(Column(result, "alpha*_wor").acceptance.value,
              Column(result, "alpha*_iid").acceptance.value);
  }
}

absl::StatusOr<std::vector<MeasuredCell>> MeasureGrid(Grid grid, ModelPair* pair, int sequences) {
  decoding::DecodingParams base;
  base.max_tokens = 24;
  auto made = MakeCells(grid, base);
  if (!made.ok()) return made.status();
  std::vector<MeasuredCell> out;
  for (const Cell& cell : made->cells) {
    auto result = RunCell(cell, {sequences, 1, 20}, pair);
    if (!result.ok()) return result.status();
    out.push_back({cell, *std::move(result)});
  }
  return out;
}

// With one drafted layer, a pass decides one layer, and one more if the draft was accepted.
TEST(CellTest, BlockEfficiencyIsOnePlusTheAcceptanceOfOneLayer) {
  Grid grid;
  grid.methods = {"rejection", "gumbel_coupling", "dsbd", "speculative_beam_search"};
  grid.depths = {1};
  grid.widths = {2};
  const auto pair = Tables(0.7);
  const auto cells = MeasureGrid(grid, pair.get(), 12);
  ASSERT_TRUE(cells.ok()) << cells.status();
  for (const MeasuredCell& cell : *cells) {
    const CellResult& result = cell.result;
    // A pass without room for a draft (the last one) decides one layer and tests no draft.
    const double tried = result.acceptance[0].count / result.block_efficiency.count;
    EXPECT_NEAR(result.block_efficiency.value, 1 + tried * result.acceptance[0].value, 1e-9)
        << CellName(cell.cell);
    EXPECT_GT(result.acceptance[0].value, 0.1) << CellName(cell.cell);
  }
}

TEST(CellTest, AnEqualDraftIsAlwaysAcceptedAndPlainPassesDecideOneLayer) {
  Grid grid;
  grid.methods = {"none", "rejection", "gumbel_coupling"};
  grid.decodings = {sampling::DecodingKind::kMultinomial};
  const auto pair = Tables(0);
  const auto cells = MeasureGrid(grid, pair.get(), 8);
  ASSERT_TRUE(cells.ok()) << cells.status();
  ASSERT_EQ(cells->size(), 3u);
  EXPECT_EQ((*cells)[0].result.block_efficiency.value, 1);
  EXPECT_TRUE(std::isnan((*cells)[0].result.bytes_per_accepted.value));
  for (int i = 1; i < 3; ++i) {
    const CellResult& result = (*cells)[i].result;
    for (const Estimate& layer : result.acceptance) EXPECT_EQ(layer.value, 1);
    EXPECT_GT(result.block_efficiency.value, 4);
    EXPECT_NEAR(result.optimum_iid.value, 1, 1e-9);
    EXPECT_GT(result.bytes_per_accepted.value, 0);
    // T = 1: no sampling parameters
    EXPECT_NEAR(result.score.value, result.log_likelihood.value, 1e-6);
  }
  // A tree without proposals is smaller than a tree with its proposals.
  EXPECT_LT((*cells)[2].result.bytes_per_accepted.value,
            (*cells)[1].result.bytes_per_accepted.value);
}

TEST(CellTest, CountsCopiesAndDistinctBeams) {
  Grid grid;
  grid.methods = {"gumbel_coupling", "gumbel_top_k"};
  grid.decodings = {sampling::DecodingKind::kBeamSampling,
                    sampling::DecodingKind::kBeamSamplingWithoutReplacement};
  grid.widths = {4};
  const auto pair = Tables(0.7);
  const auto cells = MeasureGrid(grid, pair.get(), 8);
  ASSERT_TRUE(cells.ok()) << cells.status();
  ASSERT_EQ(cells->size(), 2u);
  EXPECT_EQ((*cells)[0].result.width.value, 4);
  EXPECT_LT((*cells)[0].result.distinct_beams.value, 4);
  EXPECT_EQ((*cells)[1].result.width.value, 4);
  EXPECT_EQ((*cells)[1].result.distinct_beams.value, 4);
}

TEST(ReportTest, JsonHasEveryFieldAndNullWhereNothingWasCounted) {
  Grid grid;
  grid.methods = {"none", "gumbel_coupling"};
  grid.decodings = {sampling::DecodingKind::kMultinomial};
  const auto pair = Tables(0.7);
  auto cells = MeasureGrid(grid, pair.get(), 4);
  ASSERT_TRUE(cells.ok()) << cells.status();
  LabReport report;
  report.experiment = "grid";
  report.source = pair->Describe();
  report.cells = *std::move(cells);
  report.skipped = {{"speculative_beam_search", "no"}};
  NodeStudyOptions study = Study();
  study.repeats = 1;
  study.nodes = 20;
  report.nodes = *RunNodeStudy(study, pair.get(), [](const std::string&) {});
  const auto json = nlohmann::json::parse(ReportJson(report));
  EXPECT_EQ(json["format_version"], 2);
  EXPECT_EQ(json["source"]["rows"], "random");
  ASSERT_EQ(json["cells"].size(), 2u);
  for (const char* name :
       {"method", "options", "decoding", "width", "draft_width", "draft_depth", "sampling",
        "block_efficiency", "acceptance_by_layer", "optimum", "accepted_width", "output_width",
        "distinct_beams", "log_likelihood_per_token", "score_per_token", "tokens", "nodes_per_pass",
        "bytes_per_accepted_token", "seconds"}) {
    EXPECT_TRUE(json["cells"][1].contains(name)) << name;
  }
  EXPECT_TRUE(json["cells"][0]["bytes_per_accepted_token"].is_null());
  EXPECT_GT(json["cells"][1]["block_efficiency"]["value"].get<double>(), 1);
  EXPECT_GT(json["cells"][1]["block_efficiency"]["se"].get<double>(), 0);
  EXPECT_EQ(json["cells"][1]["acceptance_by_layer"].size(), 4u);
  EXPECT_EQ(json["cells"][1]["lossless"], true);
  EXPECT_EQ(json["skipped"][0]["reason"], "no");
  EXPECT_EQ(json["nodes"][0]["sampling"]["temperature"], 1);
  EXPECT_FALSE(json["nodes"][0]["columns"].empty());
  const std::string table = ReportTable(report);
  EXPECT_THAT(table, ::testing::HasSubstr("gumbel_coupling"));
  EXPECT_THAT(table, ::testing::HasSubstr("left out: speculative_beam_search: no"));
}

}  // namespace
}  // namespace coppice::lab
