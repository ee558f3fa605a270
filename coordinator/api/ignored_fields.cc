#include "coordinator/api/ignored_fields.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"

namespace coppice::coordinator {
namespace {

constexpr size_t kMostNames = 32;
constexpr size_t kMostNameBytes = 64;

bool IsSafe(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-' || c == '[' || c == ']' ||
         c == '/' || c == '$';
}

// Without the numbers in brackets, and safe in a header.
std::string NameOf(absl::string_view path) {
  std::string name;
  bool index = false;
  for (const char c : path) {
    if (c == ']') index = false;
    if (!(index && absl::ascii_isdigit(c))) name += IsSafe(c) ? c : '?';
    if (c == '[') index = true;
    if (name.size() == kMostNameBytes) break;
  }
  return name;
}

}  // namespace

bool IgnoredFields::Add(absl::string_view path) {
  if (refuse_) return false;
  std::string name = NameOf(path);
  if (names_.size() < kMostNames && std::find(names_.begin(), names_.end(), name) == names_.end())
    names_.push_back(std::move(name));
  return true;
}

std::string IgnoredFields::Text() const { return absl::StrJoin(names_, ","); }

}  // namespace coppice::coordinator
