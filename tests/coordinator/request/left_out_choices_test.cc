// Answers whose hypotheses were left out by min_score, and hypotheses that two groups of beams hold.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/coordinator/request/request_fixture.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

class LeftOutChoicesTest : public RequestTest {
 protected:
  static GenerateRequest WithLeast(int n) {
    GenerateRequest generate = Beams(n);
    generate.params.min_score = -2;
    return generate;
  }
};

TEST_F(LeftOutChoicesTest, FewerThanNAreAnAnswer) {
  Request& request = Make(WithLeast(3));
  EXPECT_TRUE(request.OnUpdate(0, Finished({MakeHypothesis(Bytes("ab", true), -1, true)}), 1));
  const json body = exchange_->body();
  ASSERT_EQ(body["choices"].size(), 1u);
  EXPECT_EQ(body["choices"][0]["text"], "ab");
}

TEST_F(LeftOutChoicesTest, NoneIsAnEmptyListWithUsage) {
  Request& request = Make(WithLeast(2));
  EXPECT_TRUE(request.OnUpdate(0, Finished({}), 1));
  ASSERT_TRUE(request.ended());
  EXPECT_EQ(exchange_->reply->status, 200);
  const json body = exchange_->body();
  EXPECT_EQ(body["choices"], json::array());
  EXPECT_EQ(body["beam_mass"], 0.0);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST_F(LeftOutChoicesTest, AStreamEndsWithoutAChoice) {
  GenerateRequest generate = WithLeast(2);
  generate.stream = true;
  Request& request = Make(generate);
  EXPECT_TRUE(request.OnUpdate(0, Finished({}), 1));
  ASSERT_FALSE(exchange_->events.empty());
  EXPECT_EQ(exchange_->events.back(), "[DONE]");
  EXPECT_EQ(json::parse(exchange_->events[0])["choices"], json::array());
  EXPECT_EQ(exchange_->ended_cleanly, true);
}

TEST_F(LeftOutChoicesTest, NoneAfterStableTokensIsRefused) {
  Request& request = Make(WithLeast(2));
  EXPECT_TRUE(request.OnUpdate(0, Stable("a"), 1));
  EXPECT_FALSE(request.OnUpdate(0, Finished({}), 2));
  EXPECT_EQ(request.error()->message,
            "replica-0: hypotheses[0].tokens: not what it had declared stable");
}

TEST_F(LeftOutChoicesTest, ATextOfTwoGroupsIsShownTwiceAndCountsOnceInTheMass) {
  GenerateRequest generate = Beams(3);
  generate.params.num_beam_groups = 3;
  generate.params.diversity_penalty = 0.5;
  Request& request = Make(generate);
  EXPECT_TRUE(request.OnUpdate(0,
                               Finished({MakeHypothesis(Bytes("ab", true), -1, true),
                                         MakeHypothesis(Bytes("ab", true), -1, true),
                                         MakeHypothesis(Bytes("cd", true), -2, true)}),
                               1));
  const json body = exchange_->body();
  EXPECT_EQ(body["choices"].size(), 3u);
  EXPECT_NEAR(body["beam_mass"].get<double>(), std::exp(-1) + std::exp(-2), 1e-12);
}

}  // namespace
}  // namespace coppice::coordinator
