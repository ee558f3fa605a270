// The table of parameters: names, ranges, defaults. How the API and the messages use its rows is
// tested in tests/coordinator/api/parameter_fields_test.cc and tests/proto.
#include "decoding/parameter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace coppice::decoding {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<const ParameterRow*> Numbers() {
  std::vector<const ParameterRow*> rows;
  for (const ParameterRow& row : Parameters()) {
    if (row.member.type == ParameterType::kInteger || row.member.type == ParameterType::kNumber)
      rows.push_back(&row);
  }
  return rows;
}

ParameterValue ValueOf(const ParameterRow& row, double number) {
  if (row.member.type == ParameterType::kInteger) return static_cast<int64_t>(number);
  return number;
}

absl::Status Set(const ParameterRow& row, double number) {
  DecodingParams params;
  return SetParameter(row, ValueOf(row, number), &params);
}

TEST(ParameterTest, NamesAndFieldsAreUniqueAndFound) {
  std::set<std::string> names, fields;
  for (const ParameterRow& row : Parameters()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(FindParameter(row.name), &row);
    for (const char* field : row.fields) {
      EXPECT_TRUE(fields.insert(std::string(row.object) + "." + field).second) << field;
    }
    EXPECT_TRUE(row.scalar() || row.own_syntax != nullptr) << row.name;
    // Only options are checked against the method.
    EXPECT_TRUE(row.read_by != ReadBy::kOption || row.own_syntax != nullptr ||
                std::string(row.object) == "speculative")
        << row.name;
    EXPECT_EQ(row.own_syntax != nullptr && row.own_default == nullptr, false) << row.name;
  }
  EXPECT_EQ(FindParameter("magic"), nullptr);
  EXPECT_EQ(FindParameter(""), nullptr);
  // The names that requests use today. A row may be added, but none may be lost.
  for (const char* name : {"kind",
                           "method",
                           "plain",
                           "beam_width",
                           "width_schedule",
                           "num_beam_groups",
                           "diversity_penalty",
                           "min_score",
                           "no_repeat_ngram_size",
                           "num_hypotheses",
                           "max_tokens",
                           "min_tokens",
                           "seed",
                           "length_penalty",
                           "stop_when_full",
                           "refill",
                           "set_semantics",
                           "stop_ids",
                           "temperature",
                           "top_k",
                           "top_p",
                           "min_p",
                           "logit_bias",
                           "sampling_scope",
                           "draft_width",
                           "draft_depth",
                           "draft_top_k",
                           "width_threshold",
                           "min_width",
                           "draft_tree",
                           "draft_beams",
                           "mjsd_threshold",
                           "fallback_threshold",
                           "rollback_threshold",
                           "joint_tokens"}) {
    EXPECT_NE(FindParameter(name), nullptr) << name;
  }
}

TEST(ParameterTest, DefaultsAreInRange) {
  EXPECT_TRUE(CheckParameters(DecodingParams()).ok()) << CheckParameters(DecodingParams());
  for (const ParameterRow& row : Parameters()) {
    if (!row.scalar()) continue;
    EXPECT_TRUE(IsDefault(row, DecodingParams())) << row.name;
    if (row.group == ParameterGroup::kSampling) {
      EXPECT_TRUE(IsNeutral(row, DecodingParams()));
    }
  }
}

TEST(ParameterTest, BothEndsAreTakenAndNothingBeyondThem) {
  for (const ParameterRow* row : Numbers()) {
    SCOPED_TRACE(row->name);
    const ParameterRange& range = row->range;
    EXPECT_TRUE(Set(*row, range.low).ok());
    EXPECT_TRUE(Set(*row, range.high).ok());
    const bool integer = row->member.type == ParameterType::kInteger;
    const double below = integer ? range.low - 1
                         : range.low <= -std::numeric_limits<double>::max()
                             ? -INFINITY
                             : std::nextafter(range.low, -INFINITY);
    const double above = integer ? range.high + 1 : std::nextafter(range.high, INFINITY);
    for (const double wrong : {below, above}) {
      EXPECT_EQ(Set(*row, wrong).code(), absl::StatusCode::kInvalidArgument) << wrong;
      EXPECT_THAT(std::string(Set(*row, wrong).message()),
                  ::testing::AllOf(StartsWith(std::string(row->name) + ": "), HasSubstr(" in [")));
      DecodingParams params;
      row->member.put(ValueOf(*row, wrong), &params);
      if (integer && above > std::numeric_limits<int>::max()) continue;  // no int has that value
      EXPECT_THAT(std::string(CheckParameters(params).message()), StartsWith(row->name));
    }
    if (!integer) {
      EXPECT_FALSE(Set(*row, NAN).ok());
    }
  }
}

TEST(ParameterTest, AnOpenLowerEndIsOutsideItsRange) {
  const ParameterRange closed{.low = 0.5, .high = 1};
  EXPECT_TRUE(closed.Has(0.5));
  const ParameterRange open{.low = 0.5, .high = 1, .open_low = true};
  EXPECT_FALSE(open.Has(0.5));
  EXPECT_TRUE(open.Has(std::nextafter(0.5, 1.0)));
  EXPECT_TRUE(open.Has(1));
  EXPECT_FALSE(open.Has(0));
  const ParameterRange open_or_zero{.low = 0.5, .high = 1, .open_low = true, .or_zero = true};
  EXPECT_TRUE(open_or_zero.Has(0));
  EXPECT_FALSE(open_or_zero.Has(0.5));
  EXPECT_FALSE(open_or_zero.Has(NAN));
}

TEST(ParameterTest, AWrongTypeIsRefusedAndChangesNothing) {
  for (const ParameterRow& row : Parameters()) {
    if (!row.scalar()) continue;
    const DecodingParams unchanged;
    for (const ParameterValue& value : {ParameterValue(int64_t{1}), ParameterValue(1.0),
                                        ParameterValue(true), ParameterValue(uint64_t{1})}) {
      if (value.index() == static_cast<size_t>(row.member.type)) continue;
      DecodingParams params;
      const absl::Status status = SetParameter(row, value, &params);
      EXPECT_THAT(std::string(status.message()),
                  StartsWith(std::string(row.name) + ": is of type "));
      EXPECT_EQ(row.member.get(params), row.member.get(unchanged)) << row.name;
    }
  }
}

// Each row has its own member: if one row puts a value, no other row's value changes.
TEST(ParameterTest, EveryRowHasItsOwnMember) {
  for (const ParameterRow& row : Parameters()) {
    if (!row.scalar()) continue;
    DecodingParams params;
    const ParameterValue before = row.member.get(params);
    if (const auto* flag = std::get_if<bool>(&before)) row.member.put(!*flag, &params);
    if (const auto* seed = std::get_if<uint64_t>(&before)) row.member.put(*seed + 1, &params);
    if (const auto* number = std::get_if<double>(&before)) row.member.put(*number + 1, &params);
    if (const auto* whole = std::get_if<int64_t>(&before)) row.member.put(*whole + 1, &params);
    for (const ParameterRow& other : Parameters()) {
      if (other.scalar()) {
        EXPECT_EQ(IsDefault(other, params), &other != &row) << other.name;
      }
    }
  }
}

// The API never accepts a wider range than the algorithms, unless it maps the value into theirs.
TEST(ParameterTest, TheApiServesNoMoreThanTheAlgorithmsTake) {
  for (const ParameterRow* row : Numbers()) {
    const ParameterRange served = row->served_range();
    EXPECT_LE(served.high, row->range.high) << row->name;
    if (std::string(row->name) != "top_k") {
      EXPECT_GE(served.low, row->range.low) << row->name;
    }
    EXPECT_TRUE(!served.or_zero || row->range.or_zero) << row->name;
  }
}

TEST(ParameterTest, TheTemperatureHasAGapAboveZero) {
  const ParameterRow& row = *FindParameter("temperature");
  EXPECT_TRUE(Set(row, 0).ok());
  EXPECT_TRUE(Set(row, sampling::kLeastTemperature).ok());
  EXPECT_EQ(Set(row, 1e-308).message(),
            "temperature: 1e-308 is neither 0 nor in [1e-06, 1.79769e+308]");
  EXPECT_EQ(Set(*FindParameter("min_tokens"), -2).message(),
            "min_tokens: -2 is not in [0, 2147483647]");
}

}  // namespace
}  // namespace coppice::decoding
