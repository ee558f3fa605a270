// Numbers of JSON schemas: bounds and steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "grammar/json_schema.h"
#include "tests/grammar/schema_cases.h"
#include "tests/grammar/texts.h"

namespace coppice::grammar {
namespace {

TEST(JsonNumberTest, Numbers) {
  ExpectCases({
      {R"({"type":"number","minimum":-1.5,"maximum":2.25})",
       {"-1.5", "-1.50", "-1", "-0.1", "0", "0.0", "1.999", "2", "2.25", "2.250"},
       {"-1.51", "-2", "-0", "-0.0", "2.251", "2.3", "3", "10", "00", "1.", "1e0", "01"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":0.3})",
       {"0.1", "0.00000000000001", "0.29999999999999", "0.2"},
       {"0", "0.0", "0.3", "0.30", "0.299999999999999", "-0.1", "1"}},
      {R"({"minimum":100})", {"100", "100.0", "999999999999999"}, {"99", "99.9", "1e15", "null"}},
      {R"({"maximum":-0.001})", {"-0.001", "-1", "-12.5"}, {"0", "-0.0009", "-0.0", "1"}},
      {R"({"type":"number","minimum":1e-3,"maximum":1E+1})", {"0.001", "10"}, {"0.0009", "10.1"}},
      {R"({"minimum":1,"exclusiveMinimum":2,"exclusiveMaximum":4,"maximum":3.5})",
       {"2.1", "3.5"},
       {"2", "3.6", "1"}},
      {R"({"type":"number","multipleOf":0.25})",
       {"0", "0.25", "-0.5", "1.75", "1.50", "12", "123.00"},
       {"0.1", "0.3", "1.251", "0.125", "-0"}},
      {R"({"type":"number","multipleOf":0.01,"minimum":0,"maximum":1})",
       {"0", "0.07", "0.99", "1", "1.00"},
       {"1.01", "0.001", "-0.01"}},
      {R"({"type":"integer","multipleOf":7,"minimum":-20,"maximum":30})",
       {"-14", "-7", "0", "7", "28"},
       {"-21", "35", "1", "-1", "29", "7.0", "-0"}},
      {R"({"type":"integer","multipleOf":1.5})", {"0", "3", "-6", "999"}, {"1", "4", "1.5"}},
      {R"({"type":"integer","multipleOf":1000})", {"0", "-5000", "12000"}, {"500", "100"}},
      {R"({"type":"integer","multipleOf":3e17})", {"0"}, {"3", "1000000000000000"}},
      {R"({"type":"integer","multipleOf":3e15})", {"0", "9000000000000000"}, {"1000000000000000"}},
      {R"({"type":"integer","minimum":100000000000000000})",
       {"999999999999999999"},
       {"1000000000000000000"}},
      {R"({"type":"integer","multipleOf":512})", {"0", "-1024", "512000000"}, {"256", "513"}},
      {R"({"multipleOf":297e3,"minimum":-1e9,"maximum":1e9})",
       {"-297000", "594000"},
       {"297", "297001", "-298000"}},
      {R"({"type":["integer","null"],"minimum":3})", {"3", "null"}, {"2", "3.5"}},
      {R"({"type":["integer","number"],"maximum":1})", {"1", "0.5", "-7"}, {"2", "1.5"}},
      {R"({"type":"integer","minimum":-1e18,"maximum":1e18})",
       {"1000000000000000000", "-1000000000000000000"},
       {"1000000000000000001"}},
  });
}

// All hundredths from -25 to 25 against integer arithmetic, for random limits.
TEST(JsonNumberTest, LimitsOfNumbersAreThoseOfArithmetic) {
  const auto text = [](int hundredths, int decimals) {
    const int size = std::abs(hundredths);
    std::string number = absl::StrCat(hundredths < 0 ? "-" : "", size / 100);
    if (decimals > 0) absl::StrAppend(&number, ".", size % 100 / 10);
    if (decimals > 1) absl::StrAppend(&number, size % 10);
    return number;
  };
  std::mt19937 random(3);
  int served = 0;
  for (int round = 0; round < 300; ++round) {
    const bool whole = random() % 3 == 0;
    const auto bound = [&] { return static_cast<int>(random() % 4401) - 2200; };
    std::optional<int> least, above, most, below, step;
    std::string schema = absl::StrCat("{\"type\":\"", whole ? "integer" : "number", "\"");
    const auto add = [&](const char* key, std::optional<int>* limit, int value) {
      *limit = value;
      absl::StrAppend(&schema, ",\"", key, "\":", text(value, 2));
    };
    if (random() % 2 == 0) add("minimum", &least, bound());
    if (random() % 4 == 0) add("exclusiveMinimum", &above, bound());
    if (random() % 2 == 0) add("maximum", &most, bound());
    if (random() % 4 == 0) add("exclusiveMaximum", &below, bound());
    if (random() % 2 == 0) add("multipleOf", &step, static_cast<int>(random() % 300) + 1);
    const auto fits = [&](int value) {
      return (!whole || value % 100 == 0) && value >= least.value_or(value) &&
             value > above.value_or(value - 1) && value <= most.value_or(value) &&
             value < below.value_or(value + 1) && value % step.value_or(1) == 0;
    };
    SCOPED_TRACE(schema + "}");
    auto automaton = MakeAutomaton(ReadJsonSchema(schema + "}"));
    served += automaton.ok() ? 1 : 0;
    for (int value = -2500; value <= 2500; ++value) {
      const bool has_tenths = value % 100 != 0, has_hundredths = value % 10 != 0;
      for (int decimals = has_hundredths ? 2 : has_tenths ? 1 : 0; decimals <= 2; ++decimals) {
        const bool written = !whole || decimals == 0;
        // A step of two decimals that are zeros allows no decimals.
        const int of_step = !step ? 2 : *step % 100 == 0 ? 0 : *step % 10 == 0 ? 1 : 2;
        const bool expected = fits(value) && written && (whole || decimals <= of_step);
        ASSERT_EQ(automaton.ok() && HasText(&*automaton, text(value, decimals)), expected)
            << text(value, decimals);
      }
    }
  }
  EXPECT_GT(served, 200);
}

// Numbers share what their bounds do not change.
TEST(JsonNumberTest, SchemasMayHaveManyNumbersWithLimits) {
  std::string schema = R"({"type":"object","properties":{)";
  for (int i = 0; i < 500; ++i) {
    absl::StrAppend(&schema, i == 0 ? "" : ",", "\"p", i, R"(":{"type":"number","minimum":)", -i,
                    R"(.5,"maximum":)", 1000 + i, ".25}");
  }
  EXPECT_TRUE(MakeAutomaton(ReadJsonSchema(schema + "}}")).ok());
}

TEST(JsonNumberTest, TooManyStepsAreTooLarge) {
  std::string schema = R"({"anyOf":[{"multipleOf":1})";
  for (int unit = 2; unit <= 300; ++unit) absl::StrAppend(&schema, R"(,{"multipleOf":)", unit, "}");
  EXPECT_THAT(ReadJsonSchema(schema + "]}").status().message(),
              testing::HasSubstr("with it, the schema is too large"));
}

TEST(JsonNumberTest, RangesOfIntegersAreExact) {
  constexpr int kEdges[] = {-1234, -1000, -999, -120, -101, -100, -99, -12, -10, -9,  -1,   0,
                            1,     5,     9,    10,   11,   19,   99,  100, 105, 789, 1000, 1203};
  for (const int least : kEdges) {
    for (const int most : kEdges) {
      if (least > most) continue;
      auto automaton = MakeAutomaton(ReadJsonSchema(
          absl::StrCat(R"({"type":"integer","minimum":)", least, R"(,"maximum":)", most, "}")));
      ASSERT_TRUE(automaton.ok()) << automaton.status();
      for (int i = -1300; i <= 1300; ++i) {
        ASSERT_EQ(HasText(&*automaton, absl::StrCat(i)), least <= i && i <= most)
            << i << " of " << least << " to " << most;
      }
      for (const char* text : {"-0", "00", "01", "-", "", "+1", "1.0"})
        EXPECT_FALSE(HasText(&*automaton, text)) << text;
    }
  }
}

TEST(JsonNumberTest, BoundsOfIntegers) {
  ExpectCases({
      {R"({"type":"integer","minimum":5})",
       {"5", "9999999999999999"},
       {"4", "-5", "10000000000000000"}},
      {R"({"type":"integer","exclusiveMinimum":5})", {"6", "10"}, {"5"}},
      {R"({"type":"integer","minimum":4.5,"exclusiveMaximum":6.0})", {"5"}, {"4", "6"}},
      {R"({"type":"integer","exclusiveMinimum":4.5,"maximum":6.9})", {"5", "6"}, {"4", "7"}},
      {R"({"type":"integer","maximum":-3})", {"-3", "-9999999999999999"}, {"-2", "0", "3"}},
      {R"({"type":"integer","minimum":1,"exclusiveMinimum":3,"maximum":9,"exclusiveMaximum":6})",
       {"4", "5"},
       {"3", "6"}},
      {R"({"type":"integer","minimum":-1000000000000000000,"maximum":1000000000000000000})",
       {"-1000000000000000000", "1000000000000000000", "0"},
       {"-1000000000000000001", "1000000000000000001"}},
      {R"({"type":["integer","null"],"minimum":100000000000000000})",
       {"100000000000000000", "null"},
       {"99999999999999999"}},
  });
}

}  // namespace
}  // namespace coppice::grammar
