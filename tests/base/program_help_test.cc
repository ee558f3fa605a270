#include "base/program_help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/flags/flag.h"
#include "base/program.h"

ABSL_FLAG(int, first_size, 7, "rows of one pass");
ABSL_FLAG(std::string, second_name, "",
          "a name whose description is long enough that it does not fit on one line of the text, "
          "so that it must go on in the next");
ABSL_FLAG(bool, third_switch, true, "a switch");

namespace coppice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const ProgramUsage kUsage = {
    "Does one thing.", {{"Sizes", {"first_size"}}, {"Names", {"second_name", "third_switch"}}}};

TEST(ProgramHelpTest, GroupsHaveTheirFlagsWithDefaults) {
  const std::string text = HelpText("coppice-one", kUsage);
  EXPECT_THAT(text, HasSubstr("coppice-one: Does one thing.\n\nSizes:\n"
                              "  --first_size              rows of one pass [7]\n\nNames:\n"));
  EXPECT_THAT(text, HasSubstr("  --third_switch            a switch [true]\n"));
  EXPECT_THAT(text, HasSubstr("\nEvery program:\n  --log_level"));
  EXPECT_THAT(text, Not(HasSubstr("Other flags")));
}

TEST(ProgramHelpTest, NoLineIsLongerThanTheScreen) {
  size_t begin = 0;
  const std::string text = HelpText("coppice-one", kUsage);
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
  }
  EXPECT_THAT(text, HasSubstr("line\n                            of"));
}

TEST(ProgramHelpTest, FlagsWithoutAGroupComeLast) {
  EXPECT_THAT(HelpText("coppice-one", {"Does one thing.", {{"Sizes", {"first_size"}}}}),
              HasSubstr("\nOther flags:\n  --second_name"));
}

TEST(ProgramHelpTest, DashesReplaceUnderscores) {
  ProgramUsage usage = kUsage;
  usage.dashes = true;
  const std::string text = HelpText("coppice-one", usage);
  EXPECT_THAT(text, HasSubstr("--first-size"));
  EXPECT_THAT(text, Not(HasSubstr("_size")));
}

TEST(ProgramHelpTest, NoSourceFileIsNamed) {
  EXPECT_THAT(HelpText("coppice-one", kUsage), Not(HasSubstr(".cc")));
}

TEST(ProgramHelpDeathTest, AGroupNamesKnownFlags) {
  EXPECT_DEATH(HelpText("coppice-one", {"Does one thing.", {{"Sizes", {"no_such_flag"}}}}),
               "no_such_flag");
}

using ProgramFlagsDeathTest = ::testing::Test;

TEST(ProgramFlagsDeathTest, HelpAndVersionExitWithStatusZero) {
  for (std::string option : {"--help", "--version"}) {
    std::string program = "coppice-one";
    char* argv[] = {program.data(), option.data(), nullptr};
    EXPECT_EXIT(ParseProgramFlags(program, kUsage, 2, argv), testing::ExitedWithCode(0), "")
        << option;
  }
}

TEST(ProgramFlagsDeathTest, AnUnknownFlagExitsWithStatusTwoAndItsName) {
  std::string program = "coppice-one", option = "--no_such_flag=1";
  char* argv[] = {program.data(), option.data(), nullptr};
  EXPECT_EXIT(ParseProgramFlags(program, kUsage, 2, argv), testing::ExitedWithCode(2),
              "coppice-one: unknown flag --no_such_flag");
}

}  // namespace
}  // namespace coppice
