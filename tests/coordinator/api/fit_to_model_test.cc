// Requests are checked against the limits of the model that serves them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "coordinator/api/api.h"
#include "decoding/method.h"
#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator {
namespace {

using api_text::Good;
using api_text::ParseText;
using ::testing::HasSubstr;

ModelLimits Limits() {
  ModelLimits limits;
  limits.max_model_len = 100;
  limits.vocab_size = 258;
  limits.eos_ids = {256};
  limits.kv_blocks_total = 1000;
  return limits;
}

TEST(FitToModel, DefaultsToWhatTheContextLeaves) {
  GenerateRequest request = Good("");
  ASSERT_FALSE(FitToModel(Limits(), ApiLimits(), &request));
  EXPECT_EQ(request.params.max_tokens, 97);
  EXPECT_EQ(request.params.stop_ids, std::vector<TokenId>{256});
}

TEST(FitToModel, RefusesIdsThatTheModelDoesNotHave) {
  GenerateRequest request = Good("");
  request.prompts = {{65}, {257, 258, 66}};
  const auto error = FitToModel(Limits(), ApiLimits(), &request);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message, "prompt has token ids between 0 and 257");
  request.prompts[1] = {257};
  EXPECT_FALSE(FitToModel(Limits(), ApiLimits(), &request));
}

TEST(FitToModel, RefusesWhatExceedsTheContext) {
  GenerateRequest request = Good(R"("max_tokens": 98)");
  EXPECT_EQ(FitToModel(Limits(), ApiLimits(), &request)->code, "context_length_exceeded");
  GenerateRequest fits = Good(R"("max_tokens": 97)");
  EXPECT_FALSE(FitToModel(Limits(), ApiLimits(), &fits));
  GenerateRequest full = std::get<GenerateRequest>(
      ParseText(absl::StrCat("{\"prompt\": \"", std::string(99, 'a'), "\"}")));
  EXPECT_EQ(FitToModel(Limits(), ApiLimits(), &full)->param, "prompt");
}

std::string TooLong(const std::string& body) {
  GenerateRequest request = std::get<GenerateRequest>(ParseText(body));
  return FitToModel(Limits(), ApiLimits(), &request)->message;
}

// The words that clients look for.
TEST(FitToModel, TheContextErrorHasTheWordsOfOtherServers) {
  EXPECT_EQ(TooLong(R"({"prompt": "hi", "max_tokens": 98})"),
            "This model's maximum context length is 100 tokens. However, you requested 101 tokens "
            "(3 in the prompt, 98 in the completion). Please reduce the length of the prompt or "
            "completion.");
  EXPECT_EQ(TooLong(absl::StrCat("{\"prompt\": \"", std::string(99, 'a'), "\"}")),
            "This model's maximum context length is 100 tokens. However, your prompt resulted in "
            "100 tokens, which leaves no room for a completion. Please reduce the length of the "
            "prompt.");
}

TEST(FitToModel, AChatGoesOnToTheEndOfTheContext) {
  ModelLimits model = Limits();
  model.max_model_len = 10000;
  ApiLimits limits;
  const auto most = [&](bool chat) {
    GenerateRequest request = Good("");
    request.form = chat ? AnswerForm::kChat : AnswerForm::kCompletion;
    EXPECT_FALSE(FitToModel(model, limits, &request));
    return request.params.max_tokens;
  };
  EXPECT_EQ(most(false), 256);
  EXPECT_EQ(most(true), 4096);
  limits.default_chat_max_tokens = 0;
  EXPECT_EQ(most(true), 9997);
  model.kv_blocks_total = 20;  // of 16 tokens
  const int fits = most(true);
  EXPECT_GT(fits, 100);
  EXPECT_LT(fits, 320);
  GenerateRequest given = Good(absl::StrCat("\"max_tokens\": ", fits));
  EXPECT_FALSE(FitToModel(model, limits, &given));
  GenerateRequest more = Good(absl::StrCat("\"max_tokens\": ", fits + 1));
  EXPECT_EQ(FitToModel(model, limits, &more)->code, "kv_capacity_exceeded");
  GenerateRequest least = Good("\"min_tokens\": 400");
  least.form = AnswerForm::kChat;
  EXPECT_EQ(FitToModel(model, limits, &least)->param, "min_tokens");
  model.kv_blocks_total = 1;
  GenerateRequest none = Good("");
  const std::optional<ApiError> error = FitToModel(model, limits, &none);
  EXPECT_EQ(error->code, "kv_capacity_exceeded");
  EXPECT_EQ(error->param, "prompt");
}

// A tokenizer that must not be asked for tokens.
class NoTokens : public ByteTokenizer {
 public:
  std::vector<TokenId> Encode(absl::string_view, bool) const override {
    ADD_FAILURE();
    return {};
  }
  std::vector<TokenId> EncodeChat(absl::string_view, absl::Span<const size_t>,
                                  bool) const override {
    ADD_FAILURE();
    return {};
  }
};

TEST(ContextLimit, WhatCannotFitIsRefusedBeforeItsTokensAreMade) {
  const NoTokens tokens;
  const tokenizer::ChatPrompt chat(*tokenizer::ChatTemplate::Parse("{{ messages[0].content }}"),
                                   "<s>", "</s>", &tokens);
  ApiContext context = api_text::Context();
  context.tokenizer = &tokens;
  context.chat = &chat;
  context.max_model_len = 100;
  const std::string text = absl::StrCat("\"", std::string(397, 'a'), "\"");  // 100 tokens or more
  for (const std::string& prompt : {text, absl::StrCat("[", text, ", \"a\"]")}) {
    const ApiError error =
        api_text::Bad(ParseCompletion(absl::StrCat("{\"prompt\": ", prompt, "}"), "", context));
    EXPECT_EQ(error.code, "context_length_exceeded");
    EXPECT_EQ(error.param, "prompt");
  }
  const ApiError error = api_text::Bad(ParseChatCompletion(
      absl::StrCat(R"({"max_tokens": 1, "messages": [{"role": "user", "content": )", text, "}]}"),
      "", context, /*now_unix=*/0));
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.param, "max_tokens");
}

TEST(ContextLimit, WhatMayFitIsRead) {
  ApiContext context = api_text::Context();
  context.max_model_len = 100;
  const auto parse = [&](size_t bytes, const char* fields) {
    return api_text::Bad(ParseCompletion(
        absl::StrCat("{\"prompt\": \"", std::string(bytes, 'a'), "\"", fields, "}"), "", context));
  };
  EXPECT_EQ(parse(396, "").code, "accepted");
  EXPECT_EQ(parse(397, "").code, "context_length_exceeded");
  EXPECT_EQ(parse(396, R"(, "max_tokens": 2)").code, "accepted");  // until its tokens are counted
  EXPECT_EQ(parse(400, R"(, "max_tokens": 0, "echo": true)").code, "accepted");
  context.max_model_len = 0;  // no replica has told it
  EXPECT_EQ(parse(4000, "").code, "accepted");
}

TEST(FitToModel, ScoringNeedsNoRoomForATokenMore) {
  const auto scored = [](int letters) {
    GenerateRequest request = std::get<GenerateRequest>(ParseText(absl::StrCat(
        "{\"prompt\": \"", std::string(letters, 'a'), R"(", "max_tokens": 0, "echo": true})")));
    return FitToModel(Limits(), ApiLimits(), &request);
  };
  EXPECT_FALSE(scored(99));  // with BOS, as long as the context
  EXPECT_EQ(scored(100)->code, "context_length_exceeded");
}

TEST(FitToModel, RefusesMoreLogprobsThanCanBeHeld) {
  ModelLimits limits = Limits();
  limits.max_model_len = 1 << 20;
  GenerateRequest fits = Good(R"("max_tokens": 2000, "logprobs": 19, "n": 50)");
  EXPECT_FALSE(FitToModel(limits, ApiLimits(), &fits));
  GenerateRequest more = Good(R"("max_tokens": 2000, "logprobs": 20, "n": 50)");
  EXPECT_EQ(FitToModel(limits, ApiLimits(), &more)->param, "logprobs");
}

TEST(FitToModel, TheDefaultLeavesRoomForTheLogprobsOfAnEchoedPrompt) {
  ModelLimits limits = Limits();
  limits.max_model_len = 1 << 20;
  limits.kv_blocks_total = 1 << 20;
  GenerateRequest request = std::get<GenerateRequest>(ParseText(absl::StrCat(
      "{\"prompt\": \"", std::string(1399, 'a'), R"(", "n": 64, "logprobs": 20, "echo": true})")));
  const std::optional<ApiError> error = FitToModel(limits, ApiLimits(), &request);
  EXPECT_FALSE(error) << error->message;
  EXPECT_EQ(request.params.max_tokens, 88);
}

TEST(FitToModel, RefusesWhatNoReplicaCanHold) {
  ModelLimits limits = Limits();
  limits.kv_blocks_total = 10;
  GenerateRequest request = Good(R"("max_tokens": 97)");
  const std::optional<ApiError> error = FitToModel(limits, ApiLimits(), &request);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "kv_capacity_exceeded");
  EXPECT_THAT(error->message, HasSubstr("15 KV blocks"));
  EXPECT_THAT(error->message, HasSubstr("has 10"));
}

// 8 beams and 2^24 tokens: if every output is a draw over all tokens, a layer needs 2^30 values of
// noise.
TEST(FitToModel, RefusesDecisionsThatWouldHoldUpEveryOtherSequence) {
  ModelLimits limits = Limits();
  limits.vocab_size = 1 << 24;
  const auto fit = [&](const std::string& fields) {
    GenerateRequest request = Good(
        absl::StrCat(R"("max_tokens": 8, "decoding": "beam_sampling", "beam_width": 8)", fields));
    return FitToModel(limits, ApiLimits(), &request);
  };
  for (const char* wide :
       {R"(, "speculative": {"method": "dsbd"})", R"(, "sampling_scope": "joint")",
        R"(, "sampling_scope": "rowcut", "speculative": false)"}) {
    const std::optional<ApiError> error = fit(wide);
    ASSERT_TRUE(error) << wide;
    EXPECT_EQ(error->code, "unsupported_combination");
    EXPECT_EQ(error->param, "beam_width");
    EXPECT_THAT(error->message, HasSubstr("at most 536870912"));
    EXPECT_THAT(error->message, HasSubstr("gumbel_coupling"));
  }
  EXPECT_FALSE(fit(""));
  EXPECT_FALSE(fit(R"(, "top_k": 50, "speculative": {"method": "dsbd"})"));
  limits.vocab_size = 1 << 23;
  EXPECT_FALSE(fit(R"(, "speculative": {"method": "dsbd"})"));
}

TEST(FitToModel, BeamsMayNeedAChainEach) {
  const GenerateRequest plain = Good(R"("max_tokens": 32, "speculative": false)");
  EXPECT_EQ(decoding::KvPagesBound(plain.params, 16, {}), 3 + 1 + 1 + 5);
  const GenerateRequest beams = Good(R"("max_tokens": 32, "num_beams": 4)");
  EXPECT_EQ(decoding::KvPagesBound(beams.params, 16, {}), 3 + 4 * 2 + (8 * 6 + 8) / 16 + 1 + 4 + 5);
}

// Of a prefix of 1000 tokens a group with a window of 100 keeps the window and what a step adds.
TEST(FitToModel, WindowsNeedFewerPages) {
  const GenerateRequest plain = Good(R"("max_tokens": 200, "speculative": false)");
  const int64_t prefix = 63, rest = 1 + 1 + 5, window = 7 + 1 + 4 + 1;
  KvStorage storage = {.windows = {0, 100, 100}, .step_tokens = 64};
  EXPECT_EQ(decoding::KvPagesBound(plain.params, 800, storage), prefix + 2 * window + 3 * rest);
  // Never more than the whole prefix.
  EXPECT_EQ(decoding::KvPagesBound(plain.params, 20, {.windows = {100}, .step_tokens = 1 << 20}),
            14 + rest);
  // Beams may part for the whole answer; what they then have in common moves at once.
  const GenerateRequest beams = Good(R"("max_tokens": 200, "num_beams": 4)");
  const int64_t apart = decoding::KvPagesBound(beams.params, 800, {}) - prefix;
  EXPECT_EQ(decoding::KvPagesBound(beams.params, 800, storage),
            prefix + 2 * (7 + 1 + 7 + 1) + 3 * apart);

  ModelLimits limits = Limits();
  limits.max_model_len = 10000;
  limits.kv_blocks_total = 400;
  limits.kv_storage = storage;
  GenerateRequest request = Good(R"("max_tokens": 5000)");
  EXPECT_FALSE(FitToModel(limits, ApiLimits(), &request));
  limits.kv_storage.windows = {0, 0, 0};
  EXPECT_EQ(FitToModel(limits, ApiLimits(), &request)->code, "kv_capacity_exceeded");
}

// A path of 16 layers has 16 nodes. A static tree has its own number of nodes. Other forms have
// 4 x 16. Without drafts, room for the target's own beams is reserved instead.
TEST(FitToModel, TheForestThatIsReservedHasTheFormOfTheMethod) {
  for (const decoding::MethodRow& row : decoding::Methods()) {
    if (row.serves != std::vector<sampling::DecodingKind>{sampling::DecodingKind::kMultinomial})
      continue;
    decoding::DecodingParams params;
    params.method = &row;
    params.max_tokens = 32;
    const auto forest = [&] { return decoding::KvPagesBound(params, 16, {}) - (3 + 1 + 5); };
    if (row.form == decoding::DraftForm::kNone) {
      params.draft_beams = 1;
      EXPECT_EQ(forest(), 1) << row.name;
      params.draft_beams = 4;
      params.joint_tokens = 3;  // a block for each branch, one for all rows, and 4 - 1 more
      EXPECT_EQ(forest(), row.reads("draft_beams") ? 4 * 1 + 1 + 3 : 1) << row.name;
      continue;
    }
    const int width = row.form == decoding::DraftForm::kPath ? 1 : row.most_children > 0 ? 2 : 4;
    params.draft_depth = 16;
    EXPECT_EQ(forest(), width + 1) << row.name;
    if (!row.reads("draft_tree")) continue;
    params.draft_depth = 0;
    params.draft_tree = "2-2-2-2";  // 30 nodes
    EXPECT_EQ(forest(), 2) << row.name;
  }
}

TEST(FitToModel, StopIdsAreTheModelsAndTheRequests) {
  GenerateRequest both = Good(R"("stop_token_ids": [65, 256])");
  ASSERT_FALSE(FitToModel(Limits(), ApiLimits(), &both));
  EXPECT_EQ(both.params.stop_ids, (std::vector<TokenId>{65, 256}));
  GenerateRequest own = Good(R"("stop_token_ids": [65], "ignore_eos": true)");
  ASSERT_FALSE(FitToModel(Limits(), ApiLimits(), &own));
  EXPECT_EQ(own.params.stop_ids, std::vector<TokenId>{65});
  EXPECT_EQ(own.vocab_size, 258);
}

}  // namespace
}  // namespace coppice::coordinator
