// A powercap folder that the test fills: which zones are counted, the end of a counter's range, and
// what ends the measuring.
#include "node/energy/rapl_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_dir.h"

namespace coppice::node {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kRange_uj = 262143328850;  // of a server

class RaplSourceTest : public ::testing::Test {
 protected:
  void Zone(const std::string& zone, const std::string& name, uint64_t energy_uj) {
    std::filesystem::create_directory(dir_.File(zone));
    dir_.Write(zone + "/name", name + "\n");
    dir_.Write(zone + "/max_energy_range_uj", absl::StrCat(kRange_uj, "\n"));
    Set(zone, energy_uj);
  }
  void Set(const std::string& zone, uint64_t energy_uj) {
    dir_.Write(zone + "/energy_uj", absl::StrCat(energy_uj, "\n"));
  }
  std::unique_ptr<EnergySource> Opened() {
    auto source = OpenRapl(dir_.path(), &clock_);
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? *std::move(source) : nullptr;
  }
  std::string Message() { return std::string(OpenRapl(dir_.path(), &clock_).status().message()); }

  test::TempDir dir_;
  ManualClock clock_;
};

TEST_F(RaplSourceTest, PackagesAreCountedAndNothingOfThemTwice) {
  Zone("intel-rapl:0", "package-0", 1000000);
  Zone("intel-rapl:1", "package-1", 5000000);
  for (const auto& [zone, name] : {std::pair("intel-rapl:0:0", "core"),
                                   {"intel-rapl:0:1", "dram"},
                                   {"intel-rapl:2", "psys"},
                                   {"intel-rapl-mmio:0", "package-0"}}) {
    Zone(zone, name, 7);
  }
  std::filesystem::create_directory(dir_.File("intel-rapl"));  // the driver itself
  const auto source = Opened();
  ASSERT_NE(source, nullptr);
  EXPECT_STREQ(source->kind(), "rapl");
  EXPECT_EQ(source->description(), "package-0, package-1");
  EXPECT_DOUBLE_EQ(*source->Joules(), 0);
  for (const char* zone : {"intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:2", "intel-rapl-mmio:0"})
    Set(zone, 900000000);
  Set("intel-rapl:0", 1250000);
  EXPECT_DOUBLE_EQ(*source->Joules(), 0.25);
  Set("intel-rapl:1", 7000000);
  EXPECT_DOUBLE_EQ(*source->Joules(), 2.25);
}

TEST_F(RaplSourceTest, ACounterBeginsAnewAtTheEndOfItsRange) {
  Zone("intel-rapl:0", "package-0", kRange_uj - 3000000);
  const auto source = Opened();
  ASSERT_NE(source, nullptr);
  clock_.now_s += 0.01;
  Set("intel-rapl:0", 2000000);
  EXPECT_DOUBLE_EQ(*source->Joules(), 5);
  Set("intel-rapl:0", 4000000);
  EXPECT_DOUBLE_EQ(*source->Joules(), 7);
}

TEST_F(RaplSourceTest, AFallThatIsNoEndOfTheRangeEndsTheMeasuring) {
  Zone("intel-rapl:0", "package-0", 100000000);
  const auto source = Opened();
  ASSERT_NE(source, nullptr);
  clock_.now_s += 0.01;
  Set("intel-rapl:0", 2000000);  // 262 kJ in 10 ms
  const auto joules = source->Joules();
  ASSERT_FALSE(joules.ok()) << *joules;
  EXPECT_THAT(std::string(joules.status().message()),
              HasSubstr("intel-rapl:0/energy_uj: fell from 100000000 to 2000000"));
}

TEST_F(RaplSourceTest, AFileThatIsGoneOrHoldsNoNumberEndsTheMeasuring) {
  Zone("intel-rapl:0", "package-0", 1);
  const auto source = Opened();
  ASSERT_NE(source, nullptr);
  dir_.Write("intel-rapl:0/energy_uj", "");
  EXPECT_THAT(std::string(source->Joules().status().message()), HasSubstr("'' is no number"));
  std::filesystem::remove_all(dir_.File("intel-rapl:0"));
  EXPECT_THAT(std::string(source->Joules().status().message()),
              HasSubstr("intel-rapl:0/energy_uj: No such file"));
}

TEST_F(RaplSourceTest, WhatCannotBeReadSaysWhyAndHowToAllowIt) {
  EXPECT_THAT(Message(), HasSubstr(dir_.path() + ": no package zone intel-rapl:N;"));
  EXPECT_THAT(std::string(OpenRapl("/nowhere", &clock_).status().message()),
              HasSubstr("/nowhere: no package zone intel-rapl:N (No such file or directory);"));
  Zone("intel-rapl:0", "package-0", 1);
  using std::filesystem::perms;
  std::filesystem::permissions(dir_.path(), perms::all);
  std::filesystem::permissions(dir_.File("intel-rapl:0/energy_uj"), perms::none);
  const int was = setfsuid(1);  // the superuser may read everything
  const std::string message = Message();
  setfsuid(was);
  EXPECT_THAT(message, HasSubstr("intel-rapl:0/energy_uj: Permission denied; allow it with: chmod "
                                 "a+r " +
                                 dir_.path() + "/intel-rapl:*/energy_uj"));
}

}  // namespace
}  // namespace coppice::node
