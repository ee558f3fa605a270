// The thread that reads a source: until it fails, hangs, or the meter ends.
#include "node/energy/energy_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/testing/stopwatch.h"

namespace coppice::node {
namespace {

using ::testing::HasSubstr;

// Answers what the test says, or hangs until the test lets it go.
struct Script {
  std::atomic<double> joules{0};
  std::atomic<bool> fails{false};
  std::atomic<int> readings{0};
  std::atomic<bool> hangs{false};
  std::atomic<bool> is_slow{false};  // every other time
};
class ScriptedSource : public EnergySource {
 public:
  explicit ScriptedSource(std::shared_ptr<Script> script) : script_(std::move(script)) {}
  absl::StatusOr<double> Joules() override {
    if (++script_->readings % 2 == 0 && script_->is_slow) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    while (script_->hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (script_->fails) return absl::UnavailableError("GPU is lost");
    return script_->joules.load();
  }
  const char* kind() const override { return "script"; }
  std::string description() const override { return "a script"; }

 private:
  const std::shared_ptr<Script> script_;
};

class EnergyMeterTest : public ::testing::Test {
 protected:
  std::unique_ptr<SampledMeter> Start(std::unique_ptr<EnergyClaim> claim = nullptr) {
    MeterOptions options;
    options.period_s = options.idle_period_s = 0.001;
    options.claim_period_s = 0.01;
    auto meter = SampledMeter::Start(options, std::make_unique<ScriptedSource>(script_),
                                     std::move(claim), &clock_);
    EXPECT_TRUE(meter.ok()) << meter.status();
    return *std::move(meter);
  }

  const std::shared_ptr<Script> script_ = std::make_shared<Script>();
  static const SteadyClock clock_;
};
const SteadyClock EnergyMeterTest::clock_;

TEST_F(EnergyMeterTest, ReadsAgainAndAgain) {
  const auto meter = Start();
  EXPECT_EQ(meter->kind(), "script");
  EXPECT_EQ(meter->Counted(clock_.NowSeconds()), 0);
  script_->joules = 7;
  EXPECT_TRUE(test::Eventually([&] { return meter->Counted(clock_.NowSeconds()) == 7; }));
  EXPECT_GE(*meter->Estimate(clock_.NowSeconds()), 7);
}

TEST_F(EnergyMeterTest, ReadsRarelyUntilSomebodyAsks) {
  MeterOptions options;
  options.period_s = 0.001;
  options.idle_period_s = 20;
  options.idle_after_s = 0.05;
  auto meter =
      SampledMeter::Start(options, std::make_unique<ScriptedSource>(script_), nullptr, &clock_);
  ASSERT_TRUE(meter.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const int readings = script_->readings;
  (*meter)->Counted(clock_.NowSeconds());  // a heartbeat is no reason
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LE(script_->readings, readings + 3);  // each wait is twice as long as the one before
  EXPECT_TRUE(test::Eventually([&] {
    (*meter)->Estimate(clock_.NowSeconds());
    return script_->readings > readings + 10;
  }));
}

TEST_F(EnergyMeterTest, SlowsDownInSteps) {
  MeterOptions options;
  options.period_s = 0.001;
  options.idle_period_s = 20;
  options.idle_after_s = 0;
  const auto meter =
      SampledMeter::Start(options, std::make_unique<ScriptedSource>(script_), nullptr, &clock_);
  ASSERT_TRUE(meter.ok());
  EXPECT_TRUE(
      test::Eventually([&] { return script_->readings > 5; }));  // after 2, 4, 8, 16 and 32 ms
}

// Nobody has asked yet, and the power is known all the same: what is used before the first request is
// not taken for a part of it.
TEST_F(EnergyMeterTest, ReadsOftenAtFirst) {
  MeterOptions options;
  options.period_s = 0.001;
  options.idle_period_s = 20;
  const auto meter =
      SampledMeter::Start(options, std::make_unique<ScriptedSource>(script_), nullptr, &clock_);
  ASSERT_TRUE(meter.ok());
  EXPECT_TRUE(test::Eventually([&] { return script_->readings > 20; }));
}

TEST_F(EnergyMeterTest, WhoAsksEndsALongWait) {
  MeterOptions options;
  options.period_s = options.idle_period_s = 60;
  options.idle_after_s = 0;
  const auto meter =
      SampledMeter::Start(options, std::make_unique<ScriptedSource>(script_), nullptr, &clock_);
  ASSERT_TRUE(meter.ok());
  EXPECT_TRUE(test::Eventually([&] {
    (*meter)->Estimate(clock_.NowSeconds());
    return script_->readings > 1;
  }));
}

// The slow ones have waited for a processor, and nobody waits 50 times as long for that.
TEST_F(EnergyMeterTest, SlowReadingsDoNotMakeTheOthersRare) {
  const auto meter = Start();
  meter->Estimate(clock_.NowSeconds());
  script_->is_slow = true;
  const int readings = script_->readings;
  // Becomes has no time for a second after each of the slow ones.
  EXPECT_TRUE(test::Eventually([&] { return script_->readings > readings + 30; }));
}

TEST_F(EnergyMeterTest, ASourceThatFailsAtOnceIsNoMeter) {
  script_->fails = true;
  const auto meter =
      SampledMeter::Start({}, std::make_unique<ScriptedSource>(script_), nullptr, &clock_);
  EXPECT_EQ(meter.status().message(), "GPU is lost");
}

TEST_F(EnergyMeterTest, AFailureIsToldOnceAndEndsTheReadings) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  {
    const auto meter = Start();
    script_->fails = true;
    EXPECT_TRUE(test::Eventually([&] { return !meter->Estimate(clock_.NowSeconds()); }));
    EXPECT_FALSE(meter->Counted(clock_.NowSeconds()));
    const int readings = script_->readings;
    script_->fails = false;  // it does not come back
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(script_->readings, readings);
    EXPECT_FALSE(meter->Estimate(clock_.NowSeconds()));
  }
  spdlog::set_default_logger(before);
  const std::string text = log.str();
  const std::string line = "energy is no longer measured: GPU is lost";
  EXPECT_THAT(text, HasSubstr(line));
  EXPECT_EQ(text.find(line), text.rfind(line));
}

// Neither the engine, which asks, nor the end of the process waits for a driver that hangs.
TEST_F(EnergyMeterTest, ASourceThatHangsHoldsUpNobody) {
  auto meter = Start();
  script_->hangs = true;
  const int readings = script_->readings;
  ASSERT_TRUE(test::Eventually([&] { return script_->readings > readings; }));
  std::promise<void> done;
  std::thread asks([&] {
    meter->Estimate(clock_.NowSeconds());
    meter.reset();
    done.set_value();
  });
  std::future<void> ended = done.get_future();
  EXPECT_TRUE(test::Eventually(
      [&] { return ended.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
  script_->hangs = false;
  asks.join();
  EXPECT_TRUE(
      test::Eventually([&] { return script_.use_count() == 1; }));  // its thread has ended too
}

TEST_F(EnergyMeterTest, CountsOnlyWhileItHoldsTheClaim) {
  const uint64_t domain = EnergyDomain("meter-test", absl::StrCat(getpid()));
  auto leader = std::make_unique<EnergyClaim>(domain, EnergyClaim::Claimant::kLeader);
  ASSERT_TRUE(leader->Holds());
  const auto meter =
      Start(std::make_unique<EnergyClaim>(domain, EnergyClaim::Claimant::kDraftNode));
  script_->joules = 5;
  const int readings = script_->readings;
  ASSERT_TRUE(test::Eventually([&] { return script_->readings > readings + 2; }));
  EXPECT_FALSE(meter->Counted(clock_.NowSeconds()));
  leader.reset();
  EXPECT_TRUE(test::Eventually([&] { return meter->Counted(clock_.NowSeconds()) == 0; }));
  script_->joules = 8;
  EXPECT_TRUE(test::Eventually([&] { return meter->Counted(clock_.NowSeconds()) == 3; }));
}

}  // namespace
}  // namespace coppice::node
