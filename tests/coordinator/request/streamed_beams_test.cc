// The stable-prefix rule with stop strings (docs/api.md 3.2): what a stream has shown of choice 0 is
// never taken back, whatever is drafted, and no part of a stop string is shown.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "coordinator/request/choice_text.h"
#include "tests/decoding/random_setting.h"
#include "tests/testing/toy_text.h"

namespace coppice::coordinator {
namespace {

using decoding::DecodeSetting;
using sampling::DecodingKind;

// Runs the rounds of one request and calls `see` with the new stable tokens of each.
template <typename See>
std::vector<decoding::Hypothesis> RunRounds(const DecodeSetting& s, const See& see) {
  const auto decoder = decoding::MakeBeamDecoder(s.params).value();
  size_t sent = 0;
  while (!decoder->finished()) {
    const decoding::DraftState state = decoder->draft_state();
    const auto drafter = decoding::MakeDrafter(s.params, state, s.draft_width).value();
    const decoding::DraftForest forest = test::HashLmForest(
        s.lm, state, drafter.get(), std::min(s.depth, decoder->max_useful_depth()), s.quality);
    test::HashLmRows rows(s.lm, state.root_hash, forest);
    decoder->Advance(forest, &rows);
    const std::vector<TokenId> stable = decoder->StablePrefix();
    see(absl::MakeConstSpan(stable).subspan(sent));
    sent = stable.size();
  }
  return decoder->Result();
}

TEST(StreamedBeams, ACharacterThatWasShownStays) {
  int ended = 0, early = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    for (sampling::DecodingKind kind :
         {sampling::DecodingKind::kMultinomial, sampling::DecodingKind::kBeamSampling,
          sampling::DecodingKind::kBeamSamplingWithoutReplacement,
          sampling::DecodingKind::kBeamSearch}) {
      DecodeSetting s = decoding::RandomSetting(seed, kind);
      s.params.max_tokens += 6;
      test::SetToyStops(test::ToyStops(static_cast<int>(seed)), s.lm.vocab_size, &s.params);
      const test::ToyTokenizer tokenizer(s.lm.vocab_size);
      GenerateRequest request;
      request.params = s.params;
      request.include_stop = seed % 3 == 0;
      ChoiceText streamed(&tokenizer, {}, request);
      std::string shown;
      std::vector<std::string> states;  // all that was ever shown
      const std::vector<decoding::Hypothesis> result =
          RunRounds(s, [&](absl::Span<const TokenId> tokens) {
            shown += streamed.Append(tokens);
            states.push_back(shown);
          });
      ChoiceText whole(&tokenizer, {}, request);
      whole.Append(result[0].tokens);
      whole.Finish();
      for (const std::string& state : states)
        ASSERT_EQ(whole.text().substr(0, state.size()), state) << "seed " << seed;
      streamed.Append(absl::MakeConstSpan(result[0].tokens)
                          .subspan(std::min(streamed.tokens().size(), result[0].tokens.size())));
      streamed.Finish();
      ASSERT_EQ(streamed.text(), whole.text()) << "seed " << seed;
      // The decoder ended where the text does.
      ASSERT_EQ(whole.tokens().size(), result[0].tokens.size()) << "seed " << seed;
      if (!request.include_stop && s.params.min_tokens == 0) {
        for (const std::string& stop : s.params.stop_strings)
          ASSERT_EQ(whole.text().find(stop), std::string::npos) << "seed " << seed;
      }
      ended += whole.stop() ? 1 : 0;
      early += states.size() > 1 && !states.front().empty() ? 1 : 0;
    }
  }
  EXPECT_GT(ended, 1000);
  EXPECT_GT(early, 200);
}

}  // namespace
}  // namespace coppice::coordinator
