#include "base/flag_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/flag_sources.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Values {
  int rows = 7;
  double share = 0.25;
  double rate = std::numeric_limits<double>::infinity();
  int64_t bytes = int64_t{5} << 32;
  uint64_t seed = 1;
  bool fast = true;
  std::string mode = "auto", folder;
  std::vector<std::string> names;
  std::optional<int> top_k;
};

class FlagTableTest : public ::testing::Test {
 protected:
  FlagTable Table() {
    return {
        .program = "coppice-one",
        .about = "Does one thing.",
        .groups = {{"Numbers",
                    {{.name = "rows", .value = &values_.rows, .range = {1, 64}},
                     {.name = "share", .value = &values_.share, .range = {0, 1, true}},
                     {.name = "rate", .value = &values_.rate, .range = {.low = 0, .above = true}},
                     {.name = "bytes", .value = &values_.bytes, .range = {0}},
                     {.name = "seed", .value = &values_.seed},
                     {.name = "top_k", .value = &values_.top_k, .range = {1}}}},
                   {"Others",
                    {{.name = "fast", .value = &values_.fast},
                     {.name = "mode", .value = &values_.mode, .words = {"auto", "on", "off"}},
                     {.name = "folder", .value = &values_.folder, .required = true},
                     {.name = "names", .value = &values_.names}}}},
        .section = "worker",
        .renamed = {{"lines", "rows"}},
        .check = [this](FlagFaults* faults) {
          if (!values_.fast && values_.rows > 8) faults->Add("rows", "is too much");
        }};
  }
  // Sets all and checks them. "": no fault.
  std::string Fault(const std::vector<std::string>& arguments) {
    absl::Status status = SetFlags(arguments, &flags_);
    if (status.ok()) status = flags_.Check();
    return std::string(status.message());
  }
  std::string FileFault(const std::string& text) {
    std::ofstream(path_) << text;
    std::string fault = Fault({"--config=" + path_, "--folder=f"});
    for (size_t at; (at = fault.find(path_)) != std::string::npos;)
      fault.replace(at, path_.size(), "FILE");
    return fault;
  }
  ~FlagTableTest() override { std::filesystem::remove(path_); }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("coppice-flags-" + std::to_string(::getpid())))
          .string();
  Values values_;
  Flags flags_{Table()};
};

TEST_F(FlagTableTest, EveryTypeIsSet) {
  EXPECT_EQ(
      Fault({"--rows=9", "--share", "0.5", "--bytes=-0", "--seed=18446744073709551615", "--nofast",
             "--mode=off", "--folder=/a=b", "--names=x,y", "--top_k=3", "--rows=8"}),
      "");
  EXPECT_EQ(values_.rows, 8);
  EXPECT_EQ(values_.share, 0.5);
  EXPECT_EQ(values_.bytes, 0);
  EXPECT_EQ(values_.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(values_.fast);
  EXPECT_EQ(values_.mode, "off");
  EXPECT_EQ(values_.folder, "/a=b");
  EXPECT_THAT(values_.names, ElementsAre("x", "y"));
  EXPECT_EQ(values_.top_k, 3);
}

TEST_F(FlagTableTest, AFlagThatIsTrueOrFalseNeedsNoValue) {
  EXPECT_EQ(Fault({"--folder=f", "--fast=false", "--fast"}), "");
  EXPECT_TRUE(values_.fast);
  EXPECT_THAT(Fault({"--norows"}), HasSubstr("unknown flag --norows"));
}

TEST_F(FlagTableTest, WhatIsNoValueOfTheTypeIsRefused) {
  EXPECT_EQ(Fault({"--rows=x"}), "--rows: bad value 'x', expected an integer");
  EXPECT_EQ(Fault({"--rows=1.5"}), "--rows: bad value '1.5', expected an integer");
  EXPECT_EQ(Fault({"--rows=4294967297"}), "--rows: bad value '4294967297', expected an integer");
  EXPECT_EQ(Fault({"--share="}), "--share: bad value '', expected a number");
  EXPECT_EQ(Fault({"--fast=maybe"}), "--fast: bad value 'maybe', expected true or false");
  EXPECT_EQ(Fault({"--seed=-1"}), "--seed: bad value '-1', expected an integer");
  EXPECT_EQ(Fault({"--rows"}), "--rows: expected a value");
  EXPECT_EQ(Fault({"rows"}), "unexpected argument 'rows'");
  EXPECT_EQ(values_.rows, 7);
}

TEST_F(FlagTableTest, RangesAndWordsAreToldTogether) {
  EXPECT_EQ(
      Fault({"--rows=0", "--share=0", "--rate=nan", "--bytes=-1", "--mode=on-off", "--top_k=0"}),
      "--rows: must be between 1 and 64, got 0\n"
      "--share: must be more than 0 and at most 1, got 0\n"
      "--rate: must be more than 0, got nan\n"
      "--bytes: must be at least 0, got -1\n"
      "--top_k: must be at least 1, got 0\n"
      "--mode: must be auto, on or off, got 'on-off'\n"
      "--folder: not given");
  EXPECT_EQ(Fault({"--rows=64", "--share=1", "--rate=inf", "--bytes=0", "--mode=on", "--top_k=1",
                   "--folder=f"}),
            "");
}

TEST_F(FlagTableTest, TheTablesOwnRulesFollow) {
  EXPECT_EQ(Fault({"--folder=f", "--nofast", "--rows=9"}), "--rows: is too much");
}

TEST_F(FlagTableTest, UnknownAndRenamedFlagsAreNamed) {
  EXPECT_EQ(Fault({"--row=1"}), "unknown flag --row, did you mean --rows?");
  EXPECT_EQ(Fault({"--zzzzzz=1"}), "unknown flag --zzzzzz");
  EXPECT_EQ(Fault({"--lines=1"}), "--lines: the name is --rows now");
  EXPECT_THAT(FileFault("[worker]\nlines = 1\n"),
              HasSubstr("FILE:2:1: worker.lines: the name is rows now"));
  ::setenv("COPPICE_LINES", "1", 1);
  EXPECT_EQ(Fault({"--folder=f"}), "COPPICE_LINES: the name is COPPICE_ROWS now");
  ::unsetenv("COPPICE_LINES");
}

TEST_F(FlagTableTest, FilesOfFlagsAreRead) {
  std::ofstream(path_) << "# flags\n--rows=5\n\n  --mode=on\n";
  EXPECT_EQ(Fault({"--flagfile=" + path_, "--folder=f"}), "");
  EXPECT_EQ(values_.rows, 5);
  EXPECT_EQ(values_.mode, "on");
  std::ofstream(path_) << "--rowz=5\n";
  EXPECT_THAT(Fault({"--flagfile", path_}), HasSubstr("unknown flag --rowz"));
  std::ofstream(path_) << "--flagfile=" << path_ << "\n";
  EXPECT_THAT(Fault({"--flagfile", path_}), HasSubstr("name each other"));
  EXPECT_THAT(Fault({"--flagfile=/none"}), HasSubstr("/none"));
}

TEST_F(FlagTableTest, FileEnvironmentAndCommandLineInThisOrder) {
  ::setenv("COPPICE_ROWS", "3", 1);
  ::setenv("COPPICE_MODE", "on", 1);
  const std::string text =
      "[worker]\nrows = 2\nmode = \"off\"\nshare = 1\n[worker.limits]\nbytes = 9\n";
  EXPECT_EQ(FileFault(text), "");
  EXPECT_EQ(values_.rows, 3);
  EXPECT_EQ(values_.mode, "on");
  EXPECT_EQ(values_.share, 1);
  EXPECT_EQ(values_.bytes, 9);
  EXPECT_EQ(flags_.Place("rows"), "COPPICE_ROWS");
  EXPECT_EQ(flags_.Place("bytes"), path_ + ":6:1: worker.limits.bytes");
  EXPECT_EQ(flags_.Place("folder"), "--folder");
  EXPECT_EQ(Fault({"--rows=4", "--folder=f"}), "");
  EXPECT_EQ(values_.rows, 4);
  EXPECT_EQ(flags_.Place("rows"), "--rows");
  ::unsetenv("COPPICE_ROWS");
  ::unsetenv("COPPICE_MODE");
}

TEST_F(FlagTableTest, FaultsOfAFileHaveTheirPlaces) {
  EXPECT_EQ(
      FileFault("rows = 1\n[worker]\nrowz = 1\nshare = \"1\"\nmode = 3\nrows = 1.5\n"
                "fast = 1\nnames = [1]\n[worker.other]\nbytes = 1\n[drafts]\n[draft]\nx = 1\n"),
      "FILE:1:1: rows is in no table (coordinator, worker or draft)\n"
      "FILE:3:1: worker.rowz: unknown field, did you mean rows?\n"
      "FILE:4:1: worker.share: expected a number, without quotes\n"
      "FILE:5:1: worker.mode: expected a text in quotes\n"
      "FILE:6:1: worker.rows: expected an integer, without quotes\n"
      "FILE:7:1: worker.fast: expected true or false, without quotes\n"
      "FILE:8:1: worker.names: expected a list as a text, \"a,b\"\n"
      "FILE:10:1: worker.other.bytes: a program has no other table than limits\n"
      "FILE:11:2: drafts: unknown table, did you mean draft?");
}

TEST_F(FlagTableTest, ThePrintedConfigurationGivesTheSameValues) {
  EXPECT_EQ(Fault({"--folder=a \"b\"\\\n\x7f\x01 c", "--rate=0.1", "--names=x,y", "--rows=12"}),
            "");
  const std::string printed = flags_.PrintedConfig();
  EXPECT_THAT(printed, HasSubstr("[worker]\nrows = 12  # command line\nshare = 0.25  # default\n"));
  EXPECT_THAT(printed, HasSubstr("rate = 0.1  # command line\n"));
  EXPECT_THAT(printed, HasSubstr("bytes = 21474836480  # default\n"));
  const Values before = values_;
  values_ = Values();
  std::ofstream(path_) << printed;
  EXPECT_EQ(Fault({"--config=" + path_}), "");
  EXPECT_EQ(values_.folder, before.folder);
  EXPECT_EQ(values_.rate, 0.1);
  EXPECT_EQ(values_.rows, 12);
  EXPECT_THAT(values_.names, ElementsAre("x", "y"));
  EXPECT_EQ(values_.top_k, std::nullopt);
  values_.rate = std::numeric_limits<double>::infinity();
  EXPECT_THAT(flags_.PrintedConfig(), HasSubstr("rate = inf"));
}

TEST_F(FlagTableTest, EveryProgramHasALogAndNamesAreUnique) {
  EXPECT_THAT(Fault({"--folder=f", "--log_level=loud"}),
              HasSubstr("--log_level: must be trace, debug, info, warn, error or off, got 'loud'"));
  EXPECT_THAT(flags_.ConfigurableNames(), Not(IsEmpty()));
  FlagTable twice = Table();
  twice.groups.push_back(twice.groups[0]);
  EXPECT_DEATH(Flags{twice}, "two rows of the table are --rows");
}

}  // namespace
}  // namespace coppice
