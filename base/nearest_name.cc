#include "base/nearest_name.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace coppice {
namespace {

constexpr size_t kLongestName = 256;  // bounds the time for a name from outside

size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestName(absl::string_view name, const std::vector<std::string>& known) {
  std::string best;
  if (name.size() > kLongestName) return best;
  size_t least = name.size() / 2 + 1;
  for (const std::string& candidate : known) {
    const size_t distance = Distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string DidYouMean(absl::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : absl::StrCat(", did you mean ", nearest, "?");
}

}  // namespace coppice
