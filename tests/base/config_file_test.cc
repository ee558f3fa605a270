#include "base/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Paths(absl::string_view text) {
  std::vector<ConfigError> errors;
  std::vector<std::string> paths;
  for (const ConfigField& field : ParseConfig(text, &errors)) {
    paths.push_back(absl::StrCat(field.path, "=", field.value, field.quoted ? "'" : "", "@",
                                 field.line, ":", field.column));
  }
  EXPECT_THAT(errors, IsEmpty());
  return paths;
}

std::string Errors(absl::string_view text) {
  std::vector<ConfigError> errors;
  ParseConfig(text, &errors);
  std::string all;
  for (const ConfigError& error : errors)
    absl::StrAppend(&all, error.line, ":", error.column, ": ", error.what, "\n");
  return all;
}

TEST(ConfigFile, FieldsOfSectionsAndBlocksWithTheirPlaces) {
  EXPECT_THAT(Paths("# a cluster\nworker { model: \"/m\"  threads: 2 # two\n}\n"
                    "coordinator {\n  limits { max_n: 8, max_queue: 9; }\n  log_requests: false }"),
              ElementsAre("worker.model=/m'@2:10", "worker.threads=2@2:23",
                          "coordinator.limits.max_n=8@5:12", "coordinator.limits.max_queue=9@5:22",
                          "coordinator.log_requests=false@6:3"));
}

TEST(ConfigFile, TextsHaveEscapesAndNumbersSigns) {
  EXPECT_THAT(Paths(R"(w { a: "x\"\\\n#" b: 'y' c: -1.5e+3 d: CPU })"),
              ElementsAre("w.a=x\"\\\n#'@1:5", "w.b=y'@1:19", "w.c=-1.5e+3@1:26", "w.d=CPU@1:37"));
}

TEST(ConfigFile, AColonBeforeABlockIsAllowed) {
  EXPECT_THAT(Paths("w: { a: 1 }"), ElementsAre("w.a=1@1:6"));
}

TEST(ConfigFile, FaultsHaveLineAndColumn) {
  EXPECT_EQ(Errors("w {\n  a 1\n}"), "2:5: expected : or { after w.a\n");
  EXPECT_EQ(Errors("w { a: }"), "1:8: expected the value of w.a\n");
  EXPECT_EQ(Errors("w { a: 1"), "1:9: expected } at the end of w\n");
  EXPECT_EQ(Errors("}"), "1:1: expected a name, got '}'\n");
  EXPECT_THAT(Errors("w { a: \"x\n }"), HasSubstr("1:8: a text without its closing quote"));
  EXPECT_THAT(Errors("w { a: \"\\q\" }"), HasSubstr("1:8: "));
  EXPECT_EQ(Errors("w {\n a: 1\n limits { a: 2 }\n}"),
            "3:11: w.limits.a: it is given twice, first in line 2\n");
  EXPECT_EQ(Errors("a { b { c { d: 1 } } }"), "1:9: a.b.c: blocks are nested too deep\n");
}

TEST(ConfigFile, NearestNames) {
  const std::vector<std::string> known = {"max_queue", "max_n", "listen"};
  EXPECT_EQ(NearestName("max_queu", known), "max_queue");
  EXPECT_EQ(NearestName("lisen", known), "listen");
  EXPECT_EQ(NearestName("zzzz", known), "");
}

}  // namespace
}  // namespace coppice
