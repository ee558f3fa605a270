#include "base/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string KindName(ConfigField::Kind kind) {
  switch (kind) {
    case ConfigField::kSection:
      return "section";
    case ConfigField::kText:
      return "text";
    case ConfigField::kInteger:
      return "integer";
    case ConfigField::kNumber:
      return "number";
    case ConfigField::kBool:
      return "bool";
    case ConfigField::kOther:
      break;
  }
  return "other";
}

std::vector<std::string> Fields(absl::string_view text) {
  std::vector<ConfigError> errors;
  std::vector<std::string> fields;
  for (const ConfigField& field : ParseConfig(text, &errors)) {
    fields.push_back(absl::StrCat(field.path, "=", field.value, " ", KindName(field.kind), "@",
                                  field.line, ":", field.column));
  }
  EXPECT_THAT(errors, IsEmpty());
  return fields;
}

std::string Errors(absl::string_view text) {
  std::vector<ConfigError> errors;
  ParseConfig(text, &errors);
  std::string all;
  for (const ConfigError& error : errors)
    absl::StrAppend(&all, error.line, ":", error.column, ": ", error.what, "\n");
  return all;
}

TEST(ConfigFile, FieldsOfTablesWithTheirPlacesInTheOrderOfTheFile) {
  EXPECT_THAT(
      Fields("# a cluster\n[worker]\nmodel = \"/m\"\n  threads = 2 # two\n\n"
             "[coordinator]\nlog_requests = false\n[coordinator.limits]\nmax_n = 8\n"),
      ElementsAre("worker= section@2:2", "worker.model=/m text@3:1", "worker.threads=2 integer@4:3",
                  "coordinator= section@6:2", "coordinator.log_requests=false bool@7:1",
                  "coordinator.limits.max_n=8 integer@9:1"));
}

TEST(ConfigFile, ValuesHaveTheirKinds) {
  EXPECT_THAT(Fields("[w]\na = \"x\\\"\\\\\\n#\"\nb = 'y'\nc = -1.5e+3\nd = 0.1\n"
                     "e = inf\nf = 1_000\ng = [1]\nh = 1979-05-27\n"),
              ElementsAre("w= section@1:2", "w.a=x\"\\\n# text@2:1", "w.b=y text@3:1",
                          "w.c=-1500 number@4:1", StartsWith("w.d=0.1"), "w.e=inf number@6:1",
                          "w.f=1000 integer@7:1", "w.g= other@8:1", "w.h= other@9:1"));
}

TEST(ConfigFile, FieldsMayStandOutsideOfTablesAndInInlineOnes) {
  EXPECT_THAT(Fields("a = 1\nw = { b = 2, limits = { c = 3 } }\n"),
              ElementsAre("a=1 integer@1:1", "w= section@2:1", "w.b=2 integer@2:7",
                          "w.limits.c=3 integer@2:25"));
}

TEST(ConfigFile, FaultsHaveLineAndColumn) {
  EXPECT_THAT(Errors("[w]\na 1\n"), StartsWith("2:3: "));
  EXPECT_THAT(Errors("[w]\n  a = \n"), StartsWith("2:"));
  EXPECT_THAT(Errors("[w\n"), StartsWith("1:3: "));
  EXPECT_THAT(Errors("[w]\na = \"x\n"), StartsWith("2:7: "));
  EXPECT_THAT(Errors("[w]\na = 1\na = 2\n"), StartsWith("3:"));
  EXPECT_EQ(Errors("[w]\na = 1\n[w.limits]\na = 2\n"),
            "4:1: w.limits.a: it is given twice, first in line 2\n");
  EXPECT_EQ(Errors("[a.b.c]\nd = 1\n"), "1:6: a.b.c: tables are nested too deep\n");
}

TEST(ConfigFile, AFileInTheOldSyntaxIsToldSo) {
  for (const char* text :
       {"# a cluster\ncoordinator {\n  max_n: 8\n}\n", "\n  worker: { threads: 1 }"})
    EXPECT_THAT(Errors(text), HasSubstr("2:1: a configuration file is in TOML now")) << text;
  EXPECT_THAT(Errors("[worker]\nworker {"), HasSubstr("in TOML now"));
  EXPECT_THAT(Errors("[worker]\nthreads { 1 }"), Not(HasSubstr("in TOML now")));
}

}  // namespace
}  // namespace coppice
