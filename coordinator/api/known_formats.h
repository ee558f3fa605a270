// Formats of recent requests that could be compiled, so that the next request with the same format
// need not compile it to be checked. Any thread.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/output_format.h"

namespace coppice::coordinator {

class KnownFormats {
 public:
  // The annotations that compiling the format gave (grammar/compile.h). nullopt: it is not known.
  std::optional<std::vector<std::string>> Find(const FormatSpec& format);
  void Add(const FormatSpec& format, std::vector<std::string> annotations);

 private:
  struct Entry {
    FormatSpec format;
    std::vector<std::string> annotations;
  };
  using Key = std::pair<FormatSpec::Kind, absl::string_view>;  // of the text of an entry

  std::mutex lock_;
  std::list<Entry> entries_;  // most recently used first
  absl::flat_hash_map<Key, std::list<Entry>::iterator> entry_of_;
  size_t bytes_ = 0;  // of their texts
};

}  // namespace coppice::coordinator
