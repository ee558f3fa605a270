#include "grammar/json_references.h"

#include <algorithm>
#include <utility>

#include "grammar/json_document.h"

namespace coppice::grammar {

void JsonReferences::Add(int from, int to, std::string pointer, bool reference) {
  const auto rules = static_cast<size_t>(std::max(from, to)) + 1;
  if (links_.size() < rules) links_.resize(rules);
  links_[from].push_back({to, std::move(pointer), reference});
}

absl::Status JsonReferences::CheckNoCircle() const {
  // Schemas whose links all lead to schemas that are done are done. From one that is left, a way
  // over others that are left comes back.
  std::vector<std::vector<int>> linked_by(links_.size());
  std::vector<size_t> left(links_.size());
  std::vector<int> done;
  for (size_t rule = 0; rule < links_.size(); ++rule) {
    left[rule] = links_[rule].size();
    if (left[rule] == 0) done.push_back(static_cast<int>(rule));
    for (const Link& link : links_[rule]) linked_by[link.to].push_back(static_cast<int>(rule));
  }
  for (size_t i = 0; i < done.size(); ++i) {
    for (const int rule : linked_by[done[i]]) {
      if (--left[rule] == 0) done.push_back(rule);
    }
  }
  if (done.size() == links_.size()) return absl::OkStatus();
  const auto way = [&](int rule) -> const Link& {
    return *std::find_if(links_[rule].begin(), links_[rule].end(),
                         [&](const Link& link) { return left[link.to] > 0; });
  };
  int at = 0;
  while (left[at] == 0) ++at;
  std::vector<bool> seen(links_.size());
  for (; !seen[at]; at = way(at).to) seen[at] = true;  // ends on the circle
  // One of the links is a reference, unless schemas were made of several.
  for (size_t i = 0; i < links_.size() && !way(at).reference; ++i) at = way(at).to;
  return SchemaError(way(at).pointer,
                     "the reference leads back to itself and describes no value on the way");
}

}  // namespace coppice::grammar
