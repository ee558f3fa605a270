#include "lab/experiments/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "decoding/method.h"
#include "lab/experiments/experiments.h"
#include "lab/experiments/sampling_text.h"

namespace coppice::lab {
namespace {

using ::testing::HasSubstr;

decoding::DecodingParams Base() {
  decoding::DecodingParams params;
  params.max_tokens = 16;
  return params;
}

std::string ErrorOf(const Grid& grid) {
  const auto cells = MakeCells(grid, Base());
  return cells.ok() ? "" : std::string(cells.status().message());
}

TEST(GridTest, HasACellOrAReasonForEveryRowAndKind) {
  const auto made = MakeCells(Grid{}, Base());
  ASSERT_TRUE(made.ok()) << made.status();
  std::set<std::string> seen;
  for (const Cell& cell : made->cells) seen.insert(std::string(decoding::MethodName(cell.params)));
  for (const decoding::MethodRow& row : decoding::Methods()) {
    EXPECT_TRUE(seen.count(std::string(row.name))) << row.name;
  }
  EXPECT_TRUE(seen.count("none"));
  // A method that is only for greedy decoding is refused at temperature 1, with the reason.
  bool refused = false;
  for (const SkippedCell& cell : made->skipped) {
    refused = refused ||
              (cell.name.find("speculative_beam_search multinomial") == 0 && !cell.reason.empty());
  }
  EXPECT_TRUE(refused);
}

TEST(GridTest, ListsEveryCellOnce) {
  Grid grid;
  grid.methods = {"none", "gumbel_coupling"};
  grid.decodings = {sampling::DecodingKind::kMultinomial};
  grid.widths = {1, 2, 4};  // multinomial decoding has width 1
  grid.draft_widths = {2, 4};
  const auto made = MakeCells(grid, Base());
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->cells.size(), 3u);
  EXPECT_EQ(made->cells[0].draft_width, 0);
  EXPECT_EQ(made->cells[1].draft_width, 2);
  EXPECT_EQ(made->cells[2].draft_width, 4);
}

TEST(GridTest, OptionsReachTheParameters) {
  Grid grid;
  grid.methods = {"dsbd:width_threshold=0.9:min_width=2"};
  grid.widths = {4};
  const auto made = MakeCells(grid, Base());
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->cells.size(), 1u);
  EXPECT_EQ(made->cells[0].params.width_threshold, 0.9);
  EXPECT_EQ(made->cells[0].params.min_width, 2);
  EXPECT_THAT(CellName(made->cells[0]), HasSubstr("width_threshold=0.9 min_width=2"));
}

TEST(GridTest, NamesWhatIsWrong) {
  Grid grid;
  grid.methods = {"pf_gumble"};
  EXPECT_THAT(ErrorOf(grid), HasSubstr("unknown method 'pf_gumble'"));
  grid.methods = {"dsbd:threshold=1"};
  EXPECT_THAT(ErrorOf(grid), HasSubstr("unknown option 'threshold'"));
  grid.methods = {"dsbd:width_threshold=wide"};
  EXPECT_THAT(ErrorOf(grid), HasSubstr("'wide' is no value of width_threshold"));
  grid.methods = {"none"};
  grid.samplings = {"T=warm"};
  EXPECT_THAT(ErrorOf(grid), HasSubstr("'T=warm'"));
  grid.samplings = {"T=1"};
  grid.widths = {0};
  EXPECT_THAT(ErrorOf(grid), HasSubstr("--widths: 0"));
  grid.widths = {1};
  grid.depths = {};
  EXPECT_THAT(ErrorOf(grid), HasSubstr("--depths"));
}

TEST(GridTest, EveryExperimentNamesWhatExists) {
  for (const Experiment& experiment : Experiments()) {
    for (const Grid& grid : experiment.grids) {
      const auto made = MakeCells(grid, Base());
      ASSERT_TRUE(made.ok()) << experiment.name << ": " << made.status();
      EXPECT_FALSE(made->cells.empty()) << experiment.name;
    }
    for (const std::string& method : experiment.methods) {
      EXPECT_NE(decoding::FindMethod(method), nullptr) << experiment.name << ": " << method;
    }
    for (const std::string& sampling : experiment.samplings)
      EXPECT_TRUE(ParseSamplingText(sampling).ok()) << sampling;
  }
  EXPECT_THAT(std::string(FindExperiment("table9").status().message()), HasSubstr("mjsd_figure3"));
}

TEST(SamplingTextTest, ReadsWhatItWrites) {
  for (const char* text : {"T=1", "T=0.7/top_k=20/top_p=0.9", "T=1/min_p=0.1/mode=joint"}) {
    const auto sampling = ParseSamplingText(text);
    ASSERT_TRUE(sampling.ok()) << sampling.status();
    EXPECT_EQ(SamplingText(*sampling), text);
  }
  for (const char* text : {"", "0.7", "T=1/topk=3", "T=1/mode=both", "top_k=x"}) {
    EXPECT_FALSE(ParseSamplingText(text).ok()) << text;
  }
}

}  // namespace
}  // namespace coppice::lab
