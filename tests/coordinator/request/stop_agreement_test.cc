// The replica ends a hypothesis (tokenizer/stop_strings), the coordinator cuts its text
// (ChoiceText). Both must find the same token, whatever bytes the tokens have.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/request/choice_text.h"
#include "sampling/rng.h"
#include "tests/coordinator/request/piece_tokenizer.h"
#include "tokenizer/stop_strings.h"

namespace coppice::coordinator {
namespace {

// Tokens with parts of characters, bytes that are never valid, spaces, nothing, special tokens.
PieceTokenizer NastyTokenizer(int spaces) {
  return PieceTokenizer({"<a>",
                         "<b>",
                         "a",
                         "b",
                         "ab",
                         " ",
                         "  b",
                         "\xe2",
                         "\xe2\x82",
                         "\x82\xac",
                         "\xac",
                         "\xf0\x9f",
                         "\x98",
                         "\x80",
                         "\xff",
                         "\xc3",
                         "\xa9",
                         "\xef\xbf",
                         "\xbd",
                         "",
                         "a\xe2\x82",
                         "\xac"
                         "b",
                         "b\xf0",
                         "\xc0",
                         "ba",
                         "\xed\xa0\x80",
                         "\xf4"},
                        /*num_special=*/2, spaces);
}

const std::vector<std::string> kStops[] = {{"ab"},
                                           {"\xe2\x82\xac"},
                                           {"\xef\xbf\xbd"},
                                           {"\xef\xbf\xbd"
                                            "a",
                                            "bb"},
                                           {" b"},
                                           {"a\xe2\x82\xac"
                                            "b",
                                            "<a>"},
                                           {"\xf0\x9f\x98\x80"},
                                           {"\xc3\xa9", "b ", "aba"},
                                           {"aab", "a "}};

struct Draws {
  uint64_t seed;
  uint32_t next = 0;
  int operator()(int n) {
    return static_cast<int>(sampling::Uniform(seed, sampling::Domain::kDirect, 5, 0, next++) * n);
  }
};

TEST(StopAgreement, ReplicaAndCoordinatorStopAtTheSameToken) {
  int matched = 0, replaced = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Draws draw{seed};
    const PieceTokenizer tokenizer = NastyTokenizer(std::vector<int>{0, 0, 1, INT_MAX}[draw(4)]);
    GenerateRequest request;
    request.params.stop_strings = kStops[draw(std::size(kStops))];
    request.params.min_tokens = draw(3) == 0 ? draw(5) : 0;
    request.skip_special_tokens = draw(2) == 0;
    std::vector<TokenId> prompt(draw(5)), path(12);
    for (TokenId& token : prompt) token = draw(tokenizer.vocab_size() + 1);
    for (TokenId& token : path) token = draw(tokenizer.vocab_size() + 1);

    ChoiceText text(&tokenizer, prompt, request);
    text.Append(path);  // without Finish: the tokens could go on
    const size_t cut = text.stop() ? text.tokens().size() : 0;

    const tokenizer::StopStrings stops(std::make_shared<tokenizer::Vocabulary>(tokenizer),
                                       request.params.stop_strings, request.skip_special_tokens,
                                       prompt);
    StopText::State state = stops.Start();
    size_t end = 0;
    for (size_t i = 0; i < path.size() && end == 0; ++i) {
      const bool search = static_cast<int>(i) + 1 >= request.params.min_tokens;
      const StopText::State next = stops.Next(state, path[i], search);
      if (search && path[i] < tokenizer.vocab_size() && seed % 16 == 0) {
        const std::vector<TokenId> completing = stops.Completing(state);
        ASSERT_EQ(std::binary_search(completing.begin(), completing.end(), path[i]),
                  stops.Matched(next));
      }
      if (stops.Matched(next)) end = i + 1;
      state = next;
    }
    ASSERT_EQ(end, cut) << "seed " << seed;
    matched += cut > 0 ? 1 : 0;
    replaced += cut > 0 && text.stop()->find("\xef\xbf\xbd") == 0 ? 1 : 0;
  }
  EXPECT_GT(matched, 4000);
  EXPECT_GT(replaced, 500);
}

}  // namespace
}  // namespace coppice::coordinator
