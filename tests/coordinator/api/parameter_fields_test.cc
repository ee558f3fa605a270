// Every scalar of the parameter table, read from the JSON of a request.
#include "coordinator/api/parameter_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/api.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::StartsWith;

constexpr int kVocab = 100;
constexpr int kBeamWidth = 3;

struct Reading {
  decoding::DecodingParams params;
  GivenParameters given;
  std::optional<ApiError> error;
  std::vector<std::string> unknown;
};

Reading Read(absl::string_view object, const json& value) {
  Reading reading;
  reading.params.beam_width = kBeamWidth;
  JsonFields fields(value, std::string(object));
  ReadParameters(object, ApiLimits(), kVocab, &fields, &reading.params, &reading.given);
  reading.error = fields.error();
  reading.unknown = fields.Unknown();
  return reading;
}

std::vector<const decoding::ParameterRow*> Rows() {
  std::vector<const decoding::ParameterRow*> rows;
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (row.own_syntax == nullptr) rows.push_back(&row);
  }
  return rows;
}

// The ends of a field's range: from GET /v1/models, or given by the vocabulary or the beam width.
json End(const decoding::ParameterRow& row, const char* which) {
  for (const auto& listed : ParametersJson(ApiLimits())) {
    if (listed["name"] != row.field() || listed["object"] != row.object) continue;
    if (!listed[which].is_null()) return listed[which];
  }
  if (row.limit == decoding::ParameterLimit::kVocabulary) return kVocab;
  if (row.limit == decoding::ParameterLimit::kBeamWidth) return kBeamWidth;
  return row.range.high;
}

TEST(ParameterFieldsTest, EveryFieldAndAliasReachesItsMember) {
  for (const decoding::ParameterRow* row : Rows()) {
    for (const char* field : row->fields) {
      SCOPED_TRACE(field);
      const bool flag = row->member.type == decoding::ParameterType::kFlag;
      const json value = flag ? json(!std::get<bool>(row->member.get(decoding::DecodingParams())))
                              : End(*row, "maximum");
      const Reading reading = Read(row->object, {{field, value}});
      ASSERT_FALSE(reading.error) << reading.error->message;
      EXPECT_TRUE(reading.given.Has(row->name));
      EXPECT_TRUE(reading.unknown.empty());
      const decoding::ParameterValue got = row->member.get(reading.params);
      std::visit([&](auto scalar) { EXPECT_EQ(json(scalar), value); }, got);
    }
  }
}

TEST(ParameterFieldsTest, AbsentAndNullStayAsTheyWere) {
  for (const decoding::ParameterRow* row : Rows()) {
    const Reading reading = Read(row->object, {{row->field(), nullptr}});
    EXPECT_FALSE(reading.error);
    EXPECT_FALSE(reading.given.Has(row->name)) << row->name;
    if (std::string(row->name) != "beam_width") {
      EXPECT_TRUE(decoding::IsDefault(*row, reading.params));
    }
  }
}

TEST(ParameterFieldsTest, BeyondEitherEndIsRefusedByName) {
  for (const decoding::ParameterRow* row : Rows()) {
    if (row->member.type == decoding::ParameterType::kFlag) continue;
    SCOPED_TRACE(row->name);
    const bool integer = row->member.type == decoding::ParameterType::kInteger;
    const double low = row->range.or_zero ? 0 : End(*row, "minimum").get<double>();
    const double high = End(*row, "maximum").get<double>();
    std::vector<json> wrong = {integer ? json(static_cast<int64_t>(low) - 1) : json(low - 0.001)};
    if (high < std::numeric_limits<double>::max())
      wrong.push_back(integer ? json(static_cast<int64_t>(high) + 1) : json(high + 0.001));
    if (row->served_range().open_low) wrong.push_back(low);
    if (integer) wrong.push_back(low + 0.5);
    const std::string path = absl::StrCat(row->object, *row->object == 0 ? "" : ".", row->field());
    for (const json& value : wrong) {
      const Reading reading = Read(row->object, {{row->field(), value}});
      ASSERT_TRUE(reading.error) << value;
      EXPECT_EQ(reading.error->code, "invalid_value") << value;
      EXPECT_EQ(reading.error->param, path);
      EXPECT_THAT(reading.error->message, StartsWith(path + " must be "));
      EXPECT_FALSE(reading.given.Has(row->name));
    }
  }
}

TEST(ParameterFieldsTest, AnotherTypeIsRefusedByName) {
  for (const decoding::ParameterRow* row : Rows()) {
    const bool flag = row->member.type == decoding::ParameterType::kFlag;
    for (const json& value :
         {json("1"), flag ? json(1) : json(true), json::array({1}), json::object({{"1", 1}})}) {
      const Reading reading = Read(row->object, {{row->field(), value}});
      ASSERT_TRUE(reading.error) << row->name << " " << value;
      // If a word stands for 0, any other word is an invalid value.
      EXPECT_EQ(reading.error->code,
                row->zero_word != nullptr && value.is_string() ? "invalid_value" : "invalid_type");
    }
  }
}

TEST(ParameterFieldsTest, WordsAndOffValuesMeanZero) {
  const Reading shape = Read("speculative", {{"draft_width", "auto"}, {"draft_depth", "auto"}});
  EXPECT_FALSE(shape.error);
  EXPECT_EQ(shape.params.draft_width, 0);
  EXPECT_EQ(Read("", {{"top_k", -1}}).params.sampling.top_k, 0);
  EXPECT_EQ(Read("", {{"temperature", 0}}).params.sampling.temperature, 0);
  EXPECT_EQ(Read("", {{"temperature", 1e-308}}).error->message,
            "temperature must be 0, or at least 1e-06, got 1e-308");
}

TEST(ParameterFieldsTest, TwoSpellingsMustAgree) {
  for (const decoding::ParameterRow* row : Rows()) {
    if (row->fields.size() < 2) continue;
    const Reading reading = Read(row->object, {{row->fields[0], 1}, {row->fields[1], 2}});
    ASSERT_TRUE(reading.error) << row->name;
    EXPECT_EQ(reading.error->code, "conflicting_fields");
  }
}

}  // namespace
}  // namespace coppice::coordinator
