#include "base/host_memory.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace coppice {
namespace {

// The number behind `key` in a file of lines "key number ...", times `unit`; -1 without it.
int64_t ReadField(const std::string& path, const std::string& key, int64_t unit) {
  std::ifstream file(path);
  std::string name, line;
  int64_t value = 0;
  while (file >> name) {
    if (name == key && file >> value) return value * unit;
    std::getline(file, line);
  }
  return -1;
}

// A file that holds one number; -1 for "max", or without the file.
int64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  return file >> word && absl::SimpleAtoi(word, &value) ? value : -1;
}

// The path of this process's group below /sys/fs/cgroup, "" for the root or version 1.
std::string ControlGroup(const std::string& root) {
  std::ifstream file(root + "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "0::/")) return line.substr(4);
  }
  return "";
}

// What a group may still take: its limit minus its usage that cannot be reclaimed.
void LimitByGroup(const std::string& folder, HostMemory* memory) {
  const int64_t limit = ReadNumber(folder + "/memory.max");
  const int64_t used = ReadNumber(folder + "/memory.current");
  if (limit < 0 || used < 0) return;
  const int64_t cache = ReadField(folder + "/memory.stat", "inactive_file", 1);
  const int64_t held = used - std::clamp<int64_t>(cache, 0, used);
  memory->total = std::min(memory->total, limit);
  memory->free = std::min(memory->free, std::max<int64_t>(0, limit - held));
}

}  // namespace

HostMemory ReadHostMemory(const std::string& root) {
  const std::string meminfo = root + "proc/meminfo";
  HostMemory memory{ReadField(meminfo, "MemAvailable:", 1024),
                    ReadField(meminfo, "MemTotal:", 1024)};
  if (memory.free < 0 || memory.total < 0) return {};
  std::string group = ControlGroup(root);
  while (true) {
    LimitByGroup(absl::StrCat(root, "sys/fs/cgroup/", group), &memory);
    if (group.empty()) return memory;
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace coppice
