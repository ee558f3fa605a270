#include "node/energy/rapl_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace coppice::node {
namespace {

constexpr char kZone[] = "intel-rapl:";  // also the name on AMD processors
constexpr char kCounter[] = "/energy_uj";
// A counter that falls has wrapped around at the end of its range, unless the package would have
// had to draw more power than this.
constexpr double kMostWatts = 5000;
constexpr double kShortest_s = 1;  // shortest time between two readings that is trusted

// A file of sysfs is generated at every opening, and disappears with its driver.
absl::StatusOr<std::string> ReadLine(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, path);
  char text[64];
  const ssize_t bytes = read(file, text, sizeof text);
  const int error = errno;
  close(file);
  if (bytes < 0) return absl::ErrnoToStatus(error, path);
  return std::string(absl::StripAsciiWhitespace(absl::string_view(text, bytes)));
}

absl::StatusOr<uint64_t> ReadNumber(const std::string& path) {
  COPPICE_ASSIGN_OR_RETURN(const std::string text, ReadLine(path));
  uint64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::DataLossError(absl::StrCat(path, ": '", text, "' is no number"));
}

bool IsTopZone(const std::string& name) {
  int number = 0;
  return absl::StartsWith(name, kZone) &&
         absl::SimpleAtoi(absl::string_view(name).substr(std::strlen(kZone)), &number);
}

struct Package {
  std::string folder, name;
  uint64_t range_uj = 0;
  uint64_t last_uj = 0;
};

class RaplSource final : public EnergySource {
 public:
  RaplSource(std::vector<Package> packages, const Clock* clock)
      : packages_(std::move(packages)), clock_(clock), last_s_(clock->NowSeconds()) {}

  const char* kind() const override { return "rapl"; }
  std::string description() const override {
    return absl::StrJoin(packages_, ", ", [](std::string* out, const Package& package) {
      out->append(package.name);
    });
  }
  absl::StatusOr<double> Joules() override {
    const double now_s = clock_->NowSeconds();
    const double most_uj = kMostWatts * std::max(now_s - last_s_, kShortest_s) * 1e6;
    for (Package& package : packages_) {
      COPPICE_ASSIGN_OR_RETURN(const uint64_t now_uj, ReadNumber(package.folder + kCounter));
      uint64_t used_uj = now_uj - package.last_uj;
      if (now_uj < package.last_uj) used_uj += package.range_uj;  // modulo 2^64
      if (now_uj < package.last_uj && !(static_cast<double>(used_uj) <= most_uj)) {
        return absl::DataLossError(absl::StrCat(package.folder, kCounter, ": fell from ",
                                                package.last_uj, " to ", now_uj,
                                                ", not at the end of its range"));
      }
      package.last_uj = now_uj;
      joules_ += static_cast<double>(used_uj) * 1e-6;
    }
    last_s_ = now_s;
    return joules_;
  }

 private:
  std::vector<Package> packages_;
  const Clock* const clock_;
  double last_s_;
  double joules_ = 0;
};

absl::StatusOr<Package> OpenPackage(const std::string& folder, std::string name) {
  Package package{folder, std::move(name), 0, 0};
  auto energy = ReadNumber(folder + kCounter);
  if (absl::IsPermissionDenied(energy.status())) {
    return absl::PermissionDeniedError(absl::StrCat(
        energy.status().message(), "; allow it with: chmod a+r ",
        std::filesystem::path(folder).parent_path().string(), "/", kZone, "*", kCounter));
  }
  COPPICE_RETURN_IF_ERROR(energy.status());
  package.last_uj = *energy;
  COPPICE_ASSIGN_OR_RETURN(package.range_uj, ReadNumber(folder + "/max_energy_range_uj"));
  return package;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EnergySource>> OpenRapl(const std::string& root,
                                                       const Clock* clock) {
  std::vector<std::string> folders;
  const std::filesystem::directory_iterator end;
  std::error_code error;
  for (std::filesystem::directory_iterator it(root, error); !error && it != end;
       it.increment(error)) {
    if (IsTopZone(it->path().filename().string())) folders.push_back(it->path().string());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<Package> packages;
  for (const std::string& folder : folders) {
    COPPICE_ASSIGN_OR_RETURN(std::string name, ReadLine(folder + "/name"));
    if (!absl::StartsWith(name, "package")) continue;
    COPPICE_ASSIGN_OR_RETURN(Package package, OpenPackage(folder, std::move(name)));
    packages.push_back(std::move(package));
  }
  if (packages.empty()) {
    return absl::NotFoundError(
        absl::StrCat(root, ": no package zone ", kZone, "N",
                     error ? absl::StrCat(" (", error.message(), ")") : "",
                     "; a virtual machine has none, on a host load the module intel_rapl_msr"));
  }
  return std::make_unique<RaplSource>(std::move(packages), clock);
}

}  // namespace coppice::node
