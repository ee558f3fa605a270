#include "base/program_help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/program.h"

namespace coppice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Values {
  int first_size = 7;
  std::string second_name;
  bool third_switch = true;
  std::string fourth = "small";
};

FlagTable Table(Values* values) {
  return {.program = "coppice-one",
          .about = "Does one thing.",
          .groups = {{"Sizes",
                      {{.name = "first_size",
                        .value = &values->first_size,
                        .range = {1, 9},
                        .text = "rows of one pass",
                        .more = "One more sentence."}}},
                     {"Names",
                      {{.name = "second_name",
                        .value = &values->second_name,
                        .own_default = "that of the model",
                        .text = "a name whose description is long enough that it does not fit on "
                                "one line of the text, so that it must go on in the next"},
                       {.name = "third_switch", .value = &values->third_switch, .text = "a switch"},
                       {.name = "fourth",
                        .value = &values->fourth,
                        .words = {"small", "large"},
                        .text = "how large"}}}}};
}

class ProgramHelpTest : public ::testing::Test {
 protected:
  Values values_;
  FlagTable table_ = Table(&values_);
};

TEST_F(ProgramHelpTest, GroupsHaveTheirFlagsWithDefaults) {
  const std::string text = HelpText(Flags(table_));
  EXPECT_THAT(text, HasSubstr("coppice-one: Does one thing.\n\nSizes:\n"
                              "  --first_size              rows of one pass [7]\n\nNames:\n"));
  EXPECT_THAT(text, HasSubstr("; default: that of the\n                            model\n"));
  EXPECT_THAT(text, HasSubstr("  --third_switch            a switch [true]\n"));
  EXPECT_THAT(text, HasSubstr("  --fourth                  how large (small or large) [small]\n"));
  EXPECT_THAT(text, HasSubstr("\nEvery program:\n  --log_level"));
}

TEST_F(ProgramHelpTest, TheDefaultIsThatOfTheTable) {
  Flags flags(table_);
  EXPECT_EQ(flags.Set(*flags.Find("first_size"), "8", "", ""), "");
  EXPECT_EQ(values_.first_size, 8);
  EXPECT_THAT(HelpText(flags), HasSubstr("rows of one pass [7]"));
}

TEST_F(ProgramHelpTest, OnlyAProgramWithATableOfAConfigurationFileHasItsFlags) {
  EXPECT_THAT(HelpText(Flags(table_)), Not(HasSubstr("--config")));
  table_.section = "worker";
  EXPECT_THAT(HelpText(Flags(table_)), HasSubstr("\nConfiguration file:\n  --config"));
}

TEST_F(ProgramHelpTest, NoLineIsLongerThanTheScreen) {
  size_t begin = 0;
  const std::string text = HelpText(Flags(table_));
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
  }
  EXPECT_THAT(text, HasSubstr("line\n                            of"));
}

TEST_F(ProgramHelpTest, DashesReplaceUnderscores) {
  table_.dashes = true;
  const std::string text = HelpText(Flags(table_));
  EXPECT_THAT(text, HasSubstr("--first-size"));
  EXPECT_THAT(text, Not(HasSubstr("_size")));
}

TEST_F(ProgramHelpTest, ThePageSaysTypeRangeDefaultAndMore) {
  const std::string page = FlagsChapter(Flags(table_));
  EXPECT_THAT(page,
              HasSubstr("## coppice-one\n\n### Sizes\n\n- **`--first_size`** (integer between 1 "
                        "and 9; default `7`): rows of one pass. One more sentence.\n"));
  EXPECT_THAT(page, HasSubstr("- **`--second_name`** (text; default: that of the model): a name"));
  EXPECT_THAT(page, HasSubstr("- **`--fourth`** (small or large; default `small`): how large.\n"));
}

using ProgramFlagsDeathTest = ProgramHelpTest;

TEST_F(ProgramFlagsDeathTest, HelpAndVersionExitWithStatusZero) {
  for (std::string option : {"--help", "--version"}) {
    std::string program = "coppice-one";
    char* argv[] = {program.data(), option.data(), nullptr};
    EXPECT_EXIT(ParseProgramFlags(table_, 2, argv), testing::ExitedWithCode(0), "") << option;
  }
}

TEST_F(ProgramFlagsDeathTest, BadFlagsExitWithStatusTwoAndTheirNames) {
  std::string program = "coppice-one";
  const std::pair<std::string, std::string> cases[] = {
      {"--no_such_flag=1", "coppice-one: unknown flag --no_such_flag"},
      {"--first_size=10", "coppice-one: --first_size: must be between 1 and 9, got 10"},
      {"--config=x", "coppice-one: --config: coppice-one reads no configuration file"}};
  for (const auto& [argument, message] : cases) {
    std::string option = argument;
    char* argv[] = {program.data(), option.data(), nullptr};
    EXPECT_EXIT(ParseProgramFlags(table_, 2, argv), testing::ExitedWithCode(2), message);
  }
}

}  // namespace
}  // namespace coppice
