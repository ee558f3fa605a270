#include "comm/local_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace coppice::comm {
namespace {

constexpr char kRank[] = "OMPI_COMM_WORLD_RANK";
constexpr char kSize[] = "OMPI_COMM_WORLD_SIZE";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The value of a number in /proc/PID/environ.
std::optional<int> NumberIn(absl::string_view environment, absl::string_view name) {
  const std::string wanted = absl::StrCat(name, "=");
  for (size_t begin = 0; begin < environment.size();) {
    const size_t end = std::min(environment.find('\0', begin), environment.size());
    const absl::string_view entry = environment.substr(begin, end - begin);
    int value = 0;
    if (entry.substr(0, wanted.size()) == wanted &&
        absl::SimpleAtoi(entry.substr(wanted.size()), &value)) {
      return value;
    }
    begin = end + 1;
  }
  return std::nullopt;
}

int NumberOr(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

}  // namespace

LaunchedRank ThisLaunchedRank() { return {NumberOr(kRank, 0), NumberOr(kSize, 1)}; }

std::vector<LocalRank> OtherLocalRanks() {
  std::vector<LocalRank> found;
  if (std::getenv(kRank) == nullptr) return found;
  const std::filesystem::directory_iterator end;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error); !error && it != end;
       it.increment(error)) {
    LocalRank other;
    if (!absl::SimpleAtoi(it->path().filename().string(), &other.pid) || other.pid == getpid())
      continue;
    const std::string stat = ReadFile(it->path() / "stat");
    const size_t name_end = stat.rfind(')');  // the name may hold anything
    if (name_end == std::string::npos) continue;
    std::istringstream fields(stat.substr(name_end + 1));
    int64_t parent = 0;
    if (!(fields >> other.state >> parent) || parent != getppid()) continue;
    const std::optional<int> rank = NumberIn(ReadFile(it->path() / "environ"), kRank);
    if (!rank) continue;
    other.rank = *rank;
    found.push_back(other);
  }
  std::sort(found.begin(), found.end(),
            [](const LocalRank& a, const LocalRank& b) { return a.rank < b.rank; });
  return found;
}

std::string StoppedRanks() {
  std::string text;
  for (const LocalRank& other : OtherLocalRanks()) {
    if (other.state != 'T' && other.state != 't') continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", "rank ", other.rank, " (pid ", other.pid,
                    ") is stopped");
  }
  return text;
}

}  // namespace coppice::comm
