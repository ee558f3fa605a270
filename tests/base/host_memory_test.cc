#include "base/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/testing/temp_dir.h"

namespace coppice {
namespace {

// A file system with what the kernel shows of memory.
class HostMemoryTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.File(name)).parent_path());
    root_.Write(name, text);
  }
  void WriteMachine() {
    Write("proc/meminfo", "MemTotal:       16000 kB\nMemFree: 10 kB\nMemAvailable:    9000 kB\n");
  }
  void WriteGroup(const std::string& group, const std::string& limit, int64_t used, int64_t cache) {
    const std::string folder = "sys/fs/cgroup/" + group + "/";
    Write(folder + "memory.max", limit + "\n");
    Write(folder + "memory.current", std::to_string(used) + "\n");
    Write(folder + "memory.stat",
          "anon 5\nfile 7\ninactive_file " + std::to_string(cache) + "\nactive_file 3\n");
  }
  HostMemory Read() const { return ReadHostMemory(root_.path() + "/"); }

  test::TempDir root_;
};

TEST_F(HostMemoryTest, WithoutLimitsWhatTheMachineHas) {
  WriteMachine();
  EXPECT_EQ(Read().free, 9000 * 1024);
  EXPECT_EQ(Read().total, 16000 * 1024);
}

TEST_F(HostMemoryTest, TheLimitOfAContainerCounts) {
  WriteMachine();
  Write("proc/self/cgroup", "0::/box/inner\n");
  WriteGroup("box/inner", "max", 3000, 0);
  WriteGroup("box", "5000", 4000, 1500);  // 2500 bytes cannot be given back
  EXPECT_EQ(Read().free, 2500);
  EXPECT_EQ(Read().total, 5000);
}

TEST_F(HostMemoryTest, TheRootsLimitCounts) {  // where a container sees its own group as the root
  WriteMachine();
  Write("proc/self/cgroup", "0::/\n");
  WriteGroup("", "7000", 8000, 500);  // over its limit already
  EXPECT_EQ(Read().free, 0);
  EXPECT_EQ(Read().total, 7000);
}

TEST_F(HostMemoryTest, ALimitAboveTheMachineChangesNothing) {
  WriteMachine();
  Write("proc/self/cgroup", "1:name=systemd:/old\n0::/box\n");
  WriteGroup("box", "99000000000", 4000, 0);
  EXPECT_EQ(Read().free, 9000 * 1024);
  EXPECT_EQ(Read().total, 16000 * 1024);
}

TEST_F(HostMemoryTest, NothingIsKnownWithoutTheKernelsFile) {
  EXPECT_EQ(Read().free, 0);
  EXPECT_EQ(Read().total, 0);
}

TEST(HostMemory, OfThisMachine) {
  const HostMemory memory = ReadHostMemory();
  EXPECT_GT(memory.free, 0);
  EXPECT_GE(memory.total, memory.free);
}

}  // namespace
}  // namespace coppice
