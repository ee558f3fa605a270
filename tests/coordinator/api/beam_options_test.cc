// Fields of beam search that other libraries have: groups, a width for each layer, min_score, and
// no_repeat_ngram_size of every decoding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "coordinator/api/translation.h"
#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator {
namespace {

using namespace api_text;  // NOLINT: the whole file is about it
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As Hugging Face Transformers and its servers take them.
TEST(BeamOptions, Groups) {
  const GenerateRequest request =
      Good(R"("num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 0.5, "do_sample": false,
              "num_return_sequences": 6)");
  EXPECT_EQ(request.params.kind, sampling::DecodingKind::kBeamSearch);
  EXPECT_EQ(request.params.beam_width, 6);
  EXPECT_EQ(request.params.num_beam_groups, 3);
  EXPECT_EQ(request.params.diversity_penalty, 0.5);
  ExpectRefused({
      {R"("num_beams": 6, "num_beam_groups": 4, "diversity_penalty": 0.5)",
       "unsupported_combination", "num_beam_groups"},
      {R"("num_beams": 6, "num_beam_groups": 3)", "unsupported_combination", "diversity_penalty"},
      {R"("num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 0.5, "do_sample": true)",
       "unsupported_combination", "num_beam_groups"},
      {R"("num_beam_groups": 2, "diversity_penalty": 0.5)", "unsupported_combination",
       "num_beam_groups"},
      {R"("num_beams": 6, "num_beam_groups": 0)", "invalid_value", "num_beam_groups"},
      {R"("num_beams": 6, "num_beam_groups": 3, "diversity_penalty": -0.5)", "invalid_value",
       "diversity_penalty"},
  });
  ExpectIgnored({
      {R"("num_beams": 6, "diversity_penalty": 0.5)", "unsupported_combination",
       "diversity_penalty"},
  });
}

TEST(BeamOptions, AWidthForEachLayer) {
  for (const char* fields :
       {R"("beam_width": [8, 4, 2], "n": 2)", R"("num_beams": [8, 4, 2], "n": 2)",
        R"("beam_width_schedule": [8, 4, 2], "n": 2)",
        R"("beam_width_schedule": [8, 4, 2], "beam_width": [8, 4, 2])"}) {
    const GenerateRequest request = Good(fields);
    EXPECT_EQ(request.params.kind, sampling::DecodingKind::kBeamSearch) << fields;
    EXPECT_THAT(request.params.width_schedule, ElementsAre(8, 4, 2)) << fields;
    EXPECT_EQ(request.params.beam_width, 8) << fields;
  }
  EXPECT_THAT(Good(R"("beam_width": 4)").params.width_schedule, IsEmpty());
  EXPECT_EQ(Good(R"("use_beam_search": true, "beam_width": [])").params.beam_width, 4);  // absent
  ExpectRefused({
      {R"("beam_width": [8, 0])", "invalid_value", "beam_width"},
      {R"("beam_width": [8, 9])", "invalid_value", "beam_width"},
      {R"("beam_width": [8, "4"])", "invalid_type", "beam_width"},
      {R"("beam_width": [8, 4], "n": 5)", "unsupported_combination", "n"},
      {R"("beam_width": [8, 4], "beam_width_schedule": [8])", "conflicting_fields",
       "beam_width_schedule"},
      {R"("beam_width": 8, "beam_width_schedule": [8])", "conflicting_fields",
       "beam_width_schedule"},
      {R"("beam_width": [8, 4], "do_sample": true)", "unsupported_combination", "beam_width"},
      {R"("beam_width_schedule": [8, 4], "decoding": "multinomial")", "unsupported_combination",
       "beam_width"},
  });
  std::string widths = "2";
  for (int i = 1; i < 64; ++i) widths += ", 2";
  EXPECT_EQ(Good("\"beam_width\": [" + widths + "]").params.width_schedule.size(), 64u);
  EXPECT_EQ(Bad(Parse("\"beam_width\": [" + widths + ", 2]")).code, "invalid_value");
}

TEST(BeamOptions, TheLeastScore) {
  EXPECT_EQ(Good(R"("use_beam_search": true)").params.min_score, decoding::kEveryScore);
  EXPECT_EQ(Good(R"("use_beam_search": true, "min_score": -1.5)").params.min_score, -1.5);
  ExpectRefused({
      {R"("use_beam_search": true, "min_score": 0.5)", "invalid_value", "min_score"},
      {R"("min_score": -1)", "unsupported_combination", "min_score"},
  });
}

TEST(BeamOptions, RepeatedNgrams) {
  EXPECT_EQ(Good(R"("no_repeat_ngram_size": 3)").params.sampling.no_repeat_ngram_size, 3);
  ExpectRefused({
      {R"("no_repeat_ngram_size": -1)", "invalid_value", "no_repeat_ngram_size"},
      {R"("no_repeat_ngram_size": 3, "decoding": "beam_sampling", "sampling_scope": "joint")",
       "unsupported_combination", "no_repeat_ngram_size"},
  });
}

// A form of answer that always has a choice cannot leave it out.
TEST(BeamOptions, ResponsesHaveNoLeastScore) {
  const ApiContext context = Context();
  const auto parsed =
      ParseResponse(R"({"input": "hi", "use_beam_search": true, "min_score": -1})", "", context, 0);
  const ApiError* error = std::get_if<ApiError>(&parsed);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, "unsupported_field");
  EXPECT_EQ(error->param, "min_score");
}

}  // namespace
}  // namespace coppice::coordinator
