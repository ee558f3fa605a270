#include "base/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/testing/temp_dir.h"

namespace coppice {
namespace {

using ::testing::EndsWith;

class RegularFileTest : public ::testing::Test {
 protected:
  // "" = it can be read.
  std::string Problem(const std::string& path, uint64_t most_bytes = 100) const {
    const auto text = ReadRegularFile(path, most_bytes);
    EXPECT_EQ(CheckRegularFile(path, most_bytes), text.status());
    return std::string(text.status().message());
  }

  const test::TempDir dir_;
};

TEST_F(RegularFileTest, IsReadWholeAndThroughLinks) {
  const std::string bytes = std::string(200'000, 'a') + '\0' + "b";
  dir_.Write("file", bytes);
  std::filesystem::create_symlink("file", dir_.File("link"));
  EXPECT_EQ(ReadRegularFile(dir_.File("file"), bytes.size()).value(), bytes);
  EXPECT_EQ(ReadRegularFile(dir_.File("link"), bytes.size()).value(), bytes);
  dir_.Write("empty", "");
  EXPECT_EQ(ReadRegularFile(dir_.File("empty"), 0).value(), "");
}

TEST_F(RegularFileTest, OfASizeThatItsKindCannotHaveIsNotRead) {
  dir_.Write("file", "1234");
  EXPECT_EQ(Problem(dir_.File("file"), 4), "");
  EXPECT_EQ(Problem(dir_.File("file"), 3), dir_.File("file") + ": 4 bytes, expected at most 3");
  std::filesystem::resize_file(dir_.File("file"), uint64_t{6} << 30);  // sparse
  EXPECT_THAT(Problem(dir_.File("file"), kMostTableBytes),
              EndsWith("file: 6442450944 bytes, expected at most 268435456"));
  // Files of the system have a size of 0 and hold something.
  EXPECT_EQ(ReadRegularFile("/proc/self/status", 10).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RegularFileTest, WhatIsNoneIsNamedAtOnce) {
  ASSERT_EQ(mkfifo(dir_.File("pipe").c_str(), 0600), 0);  // nobody writes to it
  std::filesystem::create_symlink("pipe", dir_.File("link"));
  EXPECT_EQ(Problem(dir_.File("pipe")), dir_.File("pipe") + ": not a regular file but a pipe");
  EXPECT_EQ(Problem(dir_.File("link")), dir_.File("link") + ": not a regular file but a pipe");
  EXPECT_EQ(Problem("/dev/zero"), "/dev/zero: not a regular file but a device");
  EXPECT_EQ(Problem(dir_.path()), dir_.path() + ": not a regular file but a folder");
  EXPECT_EQ(Problem(dir_.File("none")),
            dir_.File("none") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(ReadRegularFile(dir_.File("none"), 1).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace coppice
