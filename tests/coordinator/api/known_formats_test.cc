#include "coordinator/api/known_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coppice::coordinator {
namespace {

using Kind = FormatSpec::Kind;
using ::testing::ElementsAre;

TEST(KnownFormats, KeepsTheMostRecentlyUsed) {
  KnownFormats known;
  EXPECT_FALSE(known.Find({Kind::kRegex, "a"}).has_value());
  known.Add({Kind::kRegex, "a"}, {"#/x"});
  EXPECT_THAT(known.Find({Kind::kRegex, "a"}).value(), ElementsAre("#/x"));
  EXPECT_FALSE(known.Find({Kind::kGrammar, "a"}).has_value()) << "another kind";
  for (int i = 0; i < 255; ++i) {
    known.Add({Kind::kRegex, std::to_string(i)}, {});
    if (i % 50 == 0) EXPECT_TRUE(known.Find({Kind::kRegex, "a"}).has_value());
  }
  known.Add({Kind::kRegex, "one more"}, {});
  EXPECT_TRUE(known.Find({Kind::kRegex, "a"}).has_value()) << "it was used";
  EXPECT_FALSE(known.Find({Kind::kRegex, "0"}).has_value());
}

TEST(KnownFormats, BoundsItsBytes) {
  KnownFormats known;
  for (int i = 0; i < 40; ++i)
    known.Add({Kind::kGrammar, std::to_string(i) + std::string(255 << 10, 'x')}, {});
  int kept = 0;
  for (int i = 0; i < 40; ++i)
    kept += known.Find({Kind::kGrammar, std::to_string(i) + std::string(255 << 10, 'x')}) ? 1 : 0;
  EXPECT_EQ(kept, 32);
}

}  // namespace
}  // namespace coppice::coordinator
