#include "loadgen/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/flag_sources.h"
#include "loadgen/arguments.h"

namespace coppice::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BaseUrl, IsReadInParts) {
  const auto url = ParseBaseUrl("http://[::1]:8001/v2/");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, "8001");
  EXPECT_EQ(url->path, "/v2");
  EXPECT_EQ(url->HostHeader(), "[::1]:8001");
  EXPECT_EQ(ParseBaseUrl("http://host")->port, "80");
  EXPECT_EQ(url->Text(), "http://[::1]:8001/v2");
  const auto secure = ParseBaseUrl("https://host");
  ASSERT_TRUE(secure.ok()) << secure.status();
  EXPECT_TRUE(secure->tls);
  EXPECT_EQ(secure->port, "443");
  EXPECT_FALSE(url->tls);
  for (const char* bad :
       {"ftp://host", "host:1", "http://", "http://h:0", "http://h:x", "http://[::1"}) {
    EXPECT_FALSE(ParseBaseUrl(bad).ok()) << bad;
  }
}

class LoadgenFlagsTest : public ::testing::Test {
 protected:
  // Flags keep their values from one call to the next.
  std::string Error(const std::vector<std::string>& arguments) {
    FlagTable table = LoadgenFlagTable(&flags_);
    table.check = nullptr;  // the first fault of ReadOptions is told here
    Flags flags(table);
    const absl::Status set = SetFlags(NormalizeFlags(arguments), &flags);
    if (!set.ok()) return std::string(set.message());
    if (!flags.Check().ok()) return std::string(flags.Check().message());
    return std::string(ReadOptions().status().message());
  }
  absl::StatusOr<LoadgenOptions> ReadOptions() { return loadgen::ReadOptions(flags_); }

  LoadgenFlags flags_;
};

TEST_F(LoadgenFlagsTest, DashesAndUnderscoresAreEqual) {
  EXPECT_THAT(NormalizeFlags({"--max-send-lag=1-2", "--a-b", "c-d"}),
              ElementsAre("--max_send_lag=1-2", "--a_b", "c-d"));
  ASSERT_EQ(Error({"--num-prompts", "7", "--max_concurrency=3", "--use-beam-search", "--top-p=0.5",
                   "--extra-body={\"top_p\": 0.25, \"best_of\": 4}", "--metadata=a=b"}),
            "");
  const LoadgenOptions options = *ReadOptions();
  EXPECT_EQ(options.num_prompts, 7);
  EXPECT_EQ(options.max_concurrency, 3);
  EXPECT_EQ(options.body_fields["use_beam_search"], true);
  EXPECT_EQ(options.body_fields["top_p"], 0.25);
  EXPECT_EQ(options.body_fields["best_of"], 4);
  EXPECT_EQ(options.body_fields["ignore_eos"], true);  // random prompts have no natural end
  EXPECT_FALSE(options.body_fields.contains("temperature"));
}

TEST_F(LoadgenFlagsTest, MethodAndFurtherFieldsOfSpeculationMeet) {
  ASSERT_EQ(Error({"--method=bild", "--extra-body={\"speculative\": {\"allow_lossy\": true}}"}),
            "");
  const LoadgenOptions options = *ReadOptions();
  EXPECT_EQ(options.body_fields["speculative"]["method"], "bild");
  EXPECT_EQ(options.body_fields["speculative"]["allow_lossy"], true);
}

TEST_F(LoadgenFlagsTest, BadOnesAreNamed) {
  EXPECT_THAT(Error({"--no-such-flag=1"}), HasSubstr("unknown flag --no_such_flag"));
  EXPECT_THAT(Error({"--num-prompts=x"}), HasSubstr("--num_prompts: bad value 'x'"));
  EXPECT_THAT(Error({"--num-prompts"}), HasSubstr("--num_prompts: expected a value"));
  EXPECT_THAT(Error({"stray"}), HasSubstr("unexpected argument 'stray'"));
  EXPECT_EQ(Error({"--request-rate=0"}), "--request_rate: must be more than 0, got 0");
  EXPECT_EQ(Error({"--request-rate=inf"}), "");
  EXPECT_THAT(Error({"--extra-body=[1]"}), HasSubstr("--extra_body"));
  EXPECT_EQ(Error({"--extra-body={}"}), "");
  EXPECT_THAT(Error({"--metadata=novalue"}), HasSubstr("--metadata"));
  EXPECT_EQ(Error({"--metadata="}), "");
  EXPECT_THAT(Error({"--dataset-name=custom"}), HasSubstr("--dataset_path"));
  EXPECT_THAT(Error({"--dataset-name=sharegpt"}), HasSubstr("--dataset_name"));
}

TEST_F(LoadgenFlagsTest, RepeatedOnesAreGathered) {
  EXPECT_THAT(NormalizeFlags({"--goodput", "ttft:1", "tpot:2", "--goodput=e2el:3", "--n", "4"}),
              ElementsAre("--n", "4", "--goodput=ttft:1\ntpot:2\ne2el:3"));
  EXPECT_THAT(NormalizeFlags({"--header", "A=b", "stray"}), ElementsAre("stray", "--header=A=b"));
  ASSERT_EQ(Error({"--base-url=http://a:1", "--base-url", "https://b", "--header=X-A=1,2=3",
                   "--header", "X-B=", "--metadata", "k=v", "l=w", "--goodput", "ttft:200",
                   "e2el:5000", "--endpoint-policy=least_inflight"}),
            "");
  const LoadgenOptions options = *ReadOptions();
  EXPECT_EQ(options.endpoints(), "http://a:1 https://b:443");
  EXPECT_EQ(options.endpoint_policy, EndpointPolicy::kLeastInFlight);
  EXPECT_EQ(options.servers.headers[0], std::make_pair(std::string("X-A"), std::string("1,2=3")));
  EXPECT_EQ(options.servers.headers[1], std::make_pair(std::string("X-B"), std::string()));
  EXPECT_THAT(options.metadata, ElementsAre("k=v", "l=w"));
  EXPECT_EQ(options.objectives.ttft_ms, 200);
  EXPECT_EQ(options.objectives.tpot_ms, std::nullopt);
  EXPECT_EQ(options.objectives.e2el_ms, 5000);
}

TEST_F(LoadgenFlagsTest, TheKeyComesFromItsFileOrTheEnvironment) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("coppice-key-" + std::to_string(::getpid())))
          .string();
  std::ofstream(path) << "# the key\n\n0123456789abcdef name\nanother-key-of-16 x\n";
  ASSERT_EQ(Error({"--api-key-file=" + path}), "");
  EXPECT_EQ(ReadOptions()->servers.headers.back().second, "Bearer 0123456789abcdef");
  EXPECT_THAT(Error({"--header=authorization=Basic x"}), HasSubstr("Authorization is set already"));
  ASSERT_EQ(Error({"--header=", "--api-key-file="}), "");
  ::setenv("OPENAI_API_KEY", "from-the-environment", 1);
  EXPECT_EQ(ReadOptions()->servers.headers.back().second, "Bearer from-the-environment");
  ASSERT_EQ(Error({"--header=authorization=Basic x"}), "");  // what is given here is enough
  EXPECT_EQ(ReadOptions()->servers.headers.size(), 1u);
  ::unsetenv("OPENAI_API_KEY");
  std::ofstream(path) << "# none\n";
  EXPECT_THAT(Error({"--api-key-file=" + path}), HasSubstr("--api_key_file: no key in " + path));
  std::filesystem::remove(path);
}

TEST_F(LoadgenFlagsTest, ValuesOfHeadersStayOutOfTheCommandLine) {
  EXPECT_EQ(CommandLineText({"--header=Authorization=Bearer secret", "--n=1", "--header",
                             "K=secret", "--metadata", "a=b"}),
            "coppice-loadgen --header=Authorization=... --n=1 --header K=... --metadata a=b");
}

TEST_F(LoadgenFlagsTest, WhatHasNoEffectIsRefused) {
  EXPECT_THAT(Error({"--ramp-up-start-rps=3"}), HasSubstr("--ramp_up_strategy"));
  EXPECT_THAT(Error({"--ramp-up-strategy=linear"}), HasSubstr("--ramp_up_end_rps"));
  EXPECT_THAT(Error({"--ramp-up-end-rps=9", "--request-rate=3"}), HasSubstr("--request_rate"));
  EXPECT_EQ(Error({"--request-rate=inf"}), "");
  EXPECT_EQ(ReadOptions()->arrivals.ramp, Ramp::kLinear);
  EXPECT_EQ(Error({"--ramp-up-strategy=", "--ramp-up-start-rps=0", "--ramp-up-end-rps=0"}), "");
  EXPECT_THAT(Error({"--trace-window=0,5"}), HasSubstr("--trace_window"));
  EXPECT_THAT(Error({"--trace-window=5"}), HasSubstr("--trace_window"));
  EXPECT_THAT(Error({"--trace-window=", "--trace-speed=2"}), HasSubstr("--trace_speed"));
  EXPECT_THAT(Error({"--trace-speed=1", "--turns=all"}), HasSubstr("--turns"));
  EXPECT_THAT(Error({"--turns=first", "--save-texts"}), HasSubstr("--save_texts"));
  EXPECT_THAT(Error({"--save-texts=false", "--benchmark-duration=3"}),
              HasSubstr("--benchmark_duration"));
  EXPECT_EQ(Error({"--max-concurrency=2"}), "");
  EXPECT_THAT(Error({"--goodput=ttft:0"}), HasSubstr("--goodput"));
  EXPECT_THAT(Error({"--goodput=", "--request-cancellation-rate=101"}),
              HasSubstr("--request_cancellation_rate"));
}

TEST_F(LoadgenFlagsTest, ATraceBringsItsTimesUnlessToldNot) {
  ASSERT_EQ(Error({"--dataset-name=azure", "--dataset-path=x", "--trace-window=10,60.5",
                   "--trace-speed=2"}),
            "");
  EXPECT_TRUE(ReadOptions()->trace_times());
  EXPECT_EQ(ReadOptions()->window_start_s, 10);
  EXPECT_EQ(ReadOptions()->window_s, 60.5);
  EXPECT_EQ(ReadOptions()->body_fields["ignore_eos"], true);
  EXPECT_THAT(Error({"--request-rate=3"}), HasSubstr("--self_timed"));
  EXPECT_EQ(Error({"--self-timed=false", "--trace-speed=1"}), "");
  EXPECT_FALSE(ReadOptions()->trace_times());
  ASSERT_EQ(Error({"--logprobs=2"}), "");
  EXPECT_EQ(ReadOptions()->body_fields["logprobs"], 2);
  EXPECT_FALSE(ReadOptions()->text_form);
  ASSERT_EQ(Error({"--endpoint=/v1/chat/completions"}), "");
  EXPECT_EQ(ReadOptions()->body_fields["logprobs"], true);
  EXPECT_EQ(ReadOptions()->body_fields["top_logprobs"], 2);
  EXPECT_TRUE(ReadOptions()->text_form);  // messages have no token ids
}

}  // namespace
}  // namespace coppice::loadgen
