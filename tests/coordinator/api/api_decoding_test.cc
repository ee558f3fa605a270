// The fields of a request that choose the decoding and the speculation: what follows from them,
// which combinations are refused, and that the table of methods decides this.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/api/api.h"
#include "decoding/method.h"
#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator {
namespace {

using api_text::Bad;
using api_text::Good;
using api_text::Parse;
using ::testing::HasSubstr;

TEST(Api, DerivesTheDecoding) {
  struct Case {
    const char* fields;
    sampling::DecodingKind kind;
    int width, n;
  };
  for (const Case& c : std::vector<Case>{
           {R"("use_beam_search": true)", sampling::DecodingKind::kBeamSearch, 4, 1},
           {R"("use_beam_search": true, "n": 3)", sampling::DecodingKind::kBeamSearch, 3, 3},
           {R"("use_beam_search": true, "best_of": 3, "n": 3)", sampling::DecodingKind::kBeamSearch,
            3, 3},
           {R"("use_beam_search": true, "best_of": 5, "n": 2)", sampling::DecodingKind::kBeamSearch,
            5, 2},
           {R"("num_beams": 3, "n": 3)", sampling::DecodingKind::kBeamSearch, 3, 3},
           {R"("num_beams": 3, "do_sample": true)", sampling::DecodingKind::kBeamSampling, 3, 1},
           {R"("num_beams": 1)", sampling::DecodingKind::kMultinomial, 1, 1},
           {R"("decoding": "beam_search", "beam_width": 1)", sampling::DecodingKind::kBeamSearch, 1,
            1},
           {R"("decoding": "beam_sampling")", sampling::DecodingKind::kBeamSampling, 4, 1},
           {R"("decoding": "beam_sampling_without_replacement", "n": 2)",
            sampling::DecodingKind::kBeamSamplingWithoutReplacement, 2, 2},
           {R"("decoding": "multinomial", "n": 2)", sampling::DecodingKind::kMultinomial, 1, 2},
       }) {
    const GenerateRequest request = Good(c.fields);
    EXPECT_EQ(request.params.kind, c.kind) << c.fields;
    EXPECT_EQ(request.params.beam_width, c.width) << c.fields;
    EXPECT_EQ(request.n, c.n) << c.fields;
    if (c.kind != sampling::DecodingKind::kMultinomial) {
      EXPECT_EQ(request.params.num_hypotheses, c.n) << c.fields;
    }
  }
  EXPECT_EQ(Good(R"("do_sample": false)").params.sampling.temperature, 0);
  EXPECT_EQ(Good(R"("n": 2, "best_of": 4)").samples, 4);
}

TEST(Api, UnsupportedCombinationsNameBothFields) {
  struct Case {
    const char* fields;
    const char* param;
    const char* other;
  };
  for (
      const Case& c : std::vector<Case>{
          {R"("decoding": "beam_search", "temperature": 0.7)", "temperature", "beam_search"},
          {R"("decoding": "beam_search", "top_k": 5)", "top_k", "beam_search"},
          {R"("decoding": "beam_search", "top_p": 0.5)", "top_p", "beam_search"},
          {R"("decoding": "beam_search", "min_p": 0.5)", "min_p", "beam_search"},
          {R"("decoding": "beam_search", "sampling_scope": "row_raw")", "sampling_scope",
           "beam_search"},
          {R"("decoding": "beam_search", "n": 5, "beam_width": 4)", "n", "beam_width"},
          {R"("decoding": "beam_search", "refill": false)", "refill", "beam_search"},
          {R"("decoding": "beam_search", "do_sample": true)", "do_sample", "beam_search"},
          {R"("decoding": "beam_sampling", "temperature": 0)", "temperature", "beam_sampling"},
          {R"("decoding": "beam_sampling", "do_sample": false)", "do_sample", "beam_sampling"},
          {R"("decoding": "beam_sampling", "use_beam_search": true)", "use_beam_search",
           "beam_sampling"},
          {R"("decoding": "multinomial", "use_beam_search": true)", "use_beam_search",
           "multinomial"},
          {R"("decoding": "multinomial", "beam_width": 2)", "beam_width", "multinomial"},
          {R"("length_penalty": 2)", "length_penalty", "multinomial"},
          {R"("early_stopping": false)", "early_stopping", "multinomial"},
          {R"("early_stopping": "never")", "early_stopping", "multinomial"},
          {R"("refill": false)", "refill", "multinomial"},
          {R"("best_of": 2, "stream": true)", "best_of", "stream"},
          {R"("do_sample": true, "temperature": 0)", "do_sample", "temperature"},
          {R"("stream_options": {"include_usage": true})", "stream_options", "stream"},
          {R"("include_stop_str_in_output": true)", "include_stop_str_in_output", "stop"},
          {R"("decoding": "beam_search", "speculative": {"method": "gumbel_top_k"})",
           "speculative.method", "beam_search"},
          {R"("speculative": {"method": "speculative_beam_search"})", "speculative.method",
           "multinomial"},
          {R"("decoding": "beam_sampling", "speculative": {"method": "dsbd", "width_threshold": 0.5})",
           "speculative.width_threshold", "allow_lossy"},
          {R"("sampling_scope": "joint")", "sampling_scope", "multinomial"},
          {R"("decoding": "beam_sampling", "sampling_scope": "joint", "presence_penalty": 1)",
           "presence_penalty", "joint"},
          {R"("decoding": "beam_sampling", "sampling_scope": "rowcut", "repetition_penalty": 1.1)",
           "repetition_penalty", "rowcut"},
          {R"("decoding": "beam_sampling", "speculative": {"width_threshold": 0.5, "allow_lossy": true})",
           "speculative.width_threshold", "gumbel_coupling"},
          {R"("decoding": "beam_sampling", "speculative": {"method": "dsbd", "min_width": 2})",
           "speculative.min_width", "width_threshold"},
          {R"("beam_duplicates": "once")", "beam_duplicates", "multinomial"},
          {R"("speculative": {"draft_tree": "2-2"})", "speculative.draft_tree", "gumbel_coupling"},
          {R"("speculative": {"draft_beams": 2})", "speculative.draft_beams", "gumbel_coupling"},
          {R"("speculative": {"mjsd_threshold": 0.2})", "speculative.mjsd_threshold",
           "gumbel_coupling"},
          {R"("speculative": {"fallback_threshold": 0.2})", "speculative.fallback_threshold",
           "gumbel_coupling"},
          {R"("speculative": {"rollback_threshold": 3})", "speculative.rollback_threshold",
           "gumbel_coupling"},
          {R"("speculative": {"joint_tokens": 2})", "speculative.joint_tokens", "gumbel_coupling"},
      }) {
    const ApiError error = Bad(Parse(c.fields, /*strict=*/true));
    EXPECT_EQ(error.code, "unsupported_combination") << c.fields << ": " << error.message;
    EXPECT_EQ(error.param, c.param) << c.fields;
    EXPECT_THAT(error.message, HasSubstr(c.param)) << c.fields;
    EXPECT_THAT(error.message, HasSubstr(c.other)) << c.fields;
  }
}

TEST(Api, Speculative) {
  EXPECT_EQ(decoding::MethodName(Good(R"("speculative": false)").params), "none");
  EXPECT_EQ(decoding::MethodName(Good(R"("speculative": true)").params), "gumbel_coupling");
  EXPECT_EQ(decoding::MethodName(Good(R"("speculative": "auto")").params), "gumbel_coupling");
  EXPECT_EQ(decoding::MethodName(Good(R"("speculative": {"method": "auto"})").params),
            "gumbel_coupling");
  EXPECT_EQ(decoding::MethodName(Good(R"("decoding": "beam_search", "speculative": false)").params),
            "none");
  EXPECT_EQ(decoding::MethodName(Good(R"("decoding": "beam_search")").params),
            "speculative_beam_search");
  EXPECT_EQ(decoding::MethodName(
                Good(R"("decoding": "beam_sampling", "sampling_scope": "joint")").params),
            "joint_gumbel_coupling");
  const GenerateRequest request = Good(
      R"("decoding": "beam_sampling", "speculative": {"method": "dsbd", "draft_width": 6, "draft_depth": "auto",
         "draft_top_k": 8, "width_threshold": 0.5, "min_width": 2, "allow_lossy": true})");
  EXPECT_EQ(decoding::MethodName(request.params), "dsbd");
  EXPECT_EQ(request.params.draft_width, 6);
  EXPECT_EQ(request.params.draft_depth, 0);
  EXPECT_EQ(request.params.draft_top_k, 8);
  EXPECT_EQ(request.params.width_threshold, 0.5);
  EXPECT_EQ(request.params.min_width, 2);
}

// Each method is served exactly as its row of the table says, whatever rows there are.
TEST(Api, TheMethodTableDecides) {
  const auto body = [](const decoding::MethodRow& row, sampling::DecodingKind kind,
                       const std::string& fields, bool allow_lossy = true) {
    return absl::StrCat(
        R"("decoding": ")", sampling::DecodingKindName(kind),
        kind == sampling::DecodingKind::kMultinomial ? R"(", "temperature": 0)" : "\"",
        R"(, "speculative": {"method": ")", row.name, "\"", fields,
        allow_lossy ? R"(, "allow_lossy": true})" : "}");
  };
  const auto refused = [](const std::string& fields, const std::string& param) {
    const ApiError error = Bad(Parse(fields, /*strict=*/true));
    EXPECT_EQ(error.code, "unsupported_combination") << fields << ": " << error.message;
    EXPECT_EQ(error.param, param) << fields << ": " << error.message;
  };
  for (const decoding::MethodRow& row : decoding::Methods()) {
    const sampling::DecodingKind served = row.serves[0];
    for (const sampling::DecodingKind kind :
         {sampling::DecodingKind::kMultinomial, sampling::DecodingKind::kBeamSampling,
          sampling::DecodingKind::kBeamSamplingWithoutReplacement,
          sampling::DecodingKind::kBeamSearch}) {
      if (std::find(row.serves.begin(), row.serves.end(), kind) == row.serves.end()) {
        refused(body(row, kind, ""), "speculative.method");
      } else {
        EXPECT_EQ(Good(body(row, kind, "")).params.method, &row);
      }
    }
    if (!row.lossless) refused(body(row, served, "", false), "speculative.method");
    if (row.form == decoding::DraftForm::kPath) {
      Good(body(row, served, R"(, "draft_width": 1, "draft_depth": 3)"));
      refused(body(row, served, R"(, "draft_width": 2)"), "speculative.draft_width");
    }
    if (row.form == decoding::DraftForm::kNone) {
      for (const char* name : {"draft_width", "draft_depth", "draft_top_k"}) {
        refused(body(row, served, absl::StrCat(", \"", name, "\": 3")),
                absl::StrCat("speculative.", name));
      }
    }
    if (row.reads("draft_tree")) {
      EXPECT_EQ(Good(body(row, served, R"(, "draft_tree": "2-1")")).params.draft_tree, "2-1");
      refused(body(row, served, R"(, "draft_tree": "2-1", "draft_width": 2)"),
              "speculative.draft_width");
      refused(body(row, served, R"(, "draft_tree": "2-1", "draft_depth": 2)"),
              "speculative.draft_depth");
    }
    if (row.most_children > 0) {
      const int more = row.most_children + 1;
      refused(body(row, served, absl::StrCat(R"(, "draft_width": )", more)),
              "speculative.draft_width");
      refused(body(row, served, absl::StrCat(R"(, "draft_tree": "1-)", more, "\"")),
              "speculative.draft_tree");
    }
    for (const char* name : {"draft_beams", "rollback_threshold", "joint_tokens"}) {
      const std::string field = absl::StrCat(", \"", name, "\": 3");
      if (row.reads(name)) {
        Good(body(row, served, field));
      } else {
        refused(body(row, served, field), absl::StrCat("speculative.", name));
      }
    }
    // A field at its default is accepted everywhere.
    Good(body(row, served, R"(, "draft_beams": 4, "mjsd_threshold": 0.1, "fallback_threshold": 0.5,
                              "rollback_threshold": 2, "joint_tokens": 4, "draft_tree": null)"));
  }
}

}  // namespace
}  // namespace coppice::coordinator
