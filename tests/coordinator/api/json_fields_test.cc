#include "coordinator/api/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace coppice::coordinator {
namespace {

using nlohmann::json;

TEST(ParseJsonObject, CountsDepthOutsideStringsOnly) {
  json object;
  EXPECT_FALSE(ParseJsonObject(R"({"a": "[[[[\"[[["})", 2, &object));
  EXPECT_EQ(ParseJsonObject(R"({"a": [[1]]})", 2, &object)->code, "invalid_json");
  EXPECT_FALSE(ParseJsonObject(R"({"a": [[1]]})", 3, &object));
}

TEST(JsonFields, IntegersMayBeWrittenAsWholeFloats) {
  const json object = {{"a", 4.0}, {"b", 4.5}, {"c", "4"}, {"d", true}, {"e", 1e300}};
  EXPECT_EQ(JsonFields(object, "").Integer({"a"}, 0, 9), 4);
  for (const char* name : {"b", "c", "d", "e"}) {
    JsonFields fields(object, "");
    EXPECT_FALSE(fields.Integer({name}, 0, 9));
    EXPECT_EQ(fields.error()->param, name);
  }
}

TEST(JsonFields, IntegerRangeReachesTheEndsOfInt64) {
  const json object = json::parse(
      R"({"a": 9223372036854775807, "b": 9223372036854775808, "c": -9223372036854775808})");
  JsonFields fields(object, "");
  EXPECT_EQ(fields.Integer({"a"}, INT64_MIN, INT64_MAX), INT64_MAX);
  EXPECT_EQ(fields.Integer({"c"}, INT64_MIN, INT64_MAX), INT64_MIN);
  EXPECT_FALSE(fields.error());
  EXPECT_FALSE(fields.Integer({"b"}, INT64_MIN, INT64_MAX));
  EXPECT_EQ(fields.error()->code, "invalid_value");
}

TEST(JsonFields, AliasesMustAgreeAndErrorsNameTheSpelling) {
  const json object = {{"a", 1}, {"b", 1.0}, {"c", 2}, {"z", nullptr}};
  JsonFields fields(object, "outer");
  EXPECT_EQ(fields.Integer({"a", "b", "z"}, 0, 9), 1);
  EXPECT_FALSE(fields.error());
  fields.Integer({"a", "c"}, 0, 9);
  EXPECT_EQ(fields.error()->code, "conflicting_fields");
  EXPECT_EQ(fields.error()->message, "outer.a and outer.c mean the same but differ");
  JsonFields again(object, "");
  again.Integer({"missing", "c"}, 0, 1);
  EXPECT_EQ(again.error()->param, "c");
}

TEST(JsonFields, OpenEndsAreExcluded) {
  const json object = {{"a", 0}, {"b", 1}};
  JsonFields fields(object, "");
  EXPECT_EQ(fields.Number({"b"}, 0, 1, true), 1.0);
  EXPECT_FALSE(fields.Number({"a"}, 0, 1, true));
  EXPECT_EQ(fields.error()->message, "a must be above 0 and at most 1, got 0");
}

TEST(JsonFields, UnknownIsWhatNobodyAskedFor) {
  const json object = {{"a", 1}, {"b", 2}, {"c", nullptr}};
  JsonFields fields(object, "o");
  fields.Find({"a"});
  EXPECT_EQ(fields.Unknown(), std::vector<std::string>{"b"});
}

TEST(JsonFields, AnEmptyNameIsNotAnEmptyField) {
  const json object = {{"", 1}};
  EXPECT_EQ(JsonFields(object, "").Unknown(), std::vector<std::string>{R"("")"});
  EXPECT_EQ(JsonFields(object, "o").Unknown(), std::vector<std::string>{R"("")"});
}

}  // namespace
}  // namespace coppice::coordinator
