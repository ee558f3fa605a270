#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

TEST(NearestName, IsTheMostAlikeOrNone) {
  const std::vector<std::string> known = {"max_queue", "max_n", "listen"};
  EXPECT_EQ(NearestName("max_queu", known), "max_queue");
  EXPECT_EQ(NearestName("lisen", known), "listen");
  EXPECT_EQ(NearestName("zzzz", known), "");
}

TEST(NearestName, OfALongNameThereIsNone) {
  EXPECT_EQ(NearestName(std::string(256, 'a'), {std::string(256, 'a')}), std::string(256, 'a'));
  EXPECT_EQ(NearestName(std::string(257, 'a'), {std::string(256, 'a')}), "");
}

TEST(NearestName, DidYouMeanEndsAMessage) {
  EXPECT_EQ(DidYouMean("lisen", {"listen"}), ", did you mean listen?");
  EXPECT_EQ(DidYouMean("zzzz", {"listen"}), "");
}

}  // namespace
}  // namespace coppice
