#include "coordinator/api/renamed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"
#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator {
namespace {

using api_text::Bad;
using api_text::Parse;
using ::testing::HasSubstr;

TEST(RenamedTest, AnOldMethodIsRefusedWithTheNewName) {
  const std::pair<const char*, const char*> methods[] = {
      {"pf_gumbel", "gumbel_coupling"}, {"gumbel_slots", "joint_gumbel_coupling"},
      {"hg_wor", "gumbel_top_k"},       {"certified", "speculative_beam_search"},
      {"wor_reuse", "dsbd_wor"},        {"pf_rrs", "beam_recursive_rejection"},
      {"single_kv", "dsbd_single_kv"},  {"block", "block_verification"}};
  for (const auto& [old_name, new_name] : methods) {
    SCOPED_TRACE(old_name);
    const ApiError error =
        Bad(Parse(absl::StrCat(R"("speculative": {"method": ")", old_name, R"("})")));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.code, "invalid_value");
    EXPECT_EQ(error.param, "speculative.method");
    EXPECT_THAT(error.message, HasSubstr(absl::StrCat(old_name, " is now called ", new_name)));
    EXPECT_EQ(decoding::FindMethod(old_name), nullptr);
    EXPECT_NE(decoding::FindMethod(new_name), nullptr);
  }
}

TEST(RenamedTest, NoMethodThatIsServedIsAnOldName) {
  for (const decoding::MethodRow& row : decoding::Methods())
    EXPECT_EQ(RenamedMethod(row.name), "") << row.name;
  EXPECT_EQ(RenamedMethod("auto"), "");
  EXPECT_THAT(Bad(Parse(R"("speculative": {"method": "nonsense"})")).message,
              HasSubstr("must be one of auto, gumbel_coupling"));
}

TEST(RenamedTest, AnOldFieldIsRefusedWithTheNewName) {
  ApiError error = Bad(Parse(R"("warp_mode": "row")"));
  EXPECT_EQ(error.code, "unknown_field");
  EXPECT_EQ(error.param, "warp_mode");
  EXPECT_EQ(error.message, "warp_mode is now called sampling_scope");
  error = Bad(Parse(R"("speculative": {"draft_support": 8})"));
  EXPECT_EQ(error.code, "unknown_field");
  EXPECT_EQ(error.param, "speculative.draft_support");
  EXPECT_EQ(error.message, "speculative.draft_support is now called speculative.draft_top_k");
}

TEST(RenamedTest, AnOldFieldIsRefusedWhereUnknownFieldsAreIgnored) {
  const ApiContext context = api_text::Context();
  const auto parse = [&](const char* fields) {
    return ParseCompletion(absl::StrCat(R"({"prompt": "hi", )", fields, "}"), "", context);
  };
  EXPECT_EQ(Bad(parse(R"("foo": 1)")).status, 200);
  EXPECT_EQ(Bad(parse(R"("warp_mode": "row")")).message, "warp_mode is now called sampling_scope");
  EXPECT_EQ(Bad(parse(R"("speculative": {"draft_support": 8})")).param,
            "speculative.draft_support");
}

}  // namespace
}  // namespace coppice::coordinator
