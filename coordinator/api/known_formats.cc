#include "coordinator/api/known_formats.h"

namespace coppice::coordinator {
namespace {

constexpr size_t kMostKnown = 256;
constexpr size_t kMostKnownBytes = size_t{8} << 20;

}  // namespace

std::optional<std::vector<std::string>> KnownFormats::Find(const FormatSpec& format) {
  const std::lock_guard<std::mutex> lock(lock_);
  const auto known = entry_of_.find(Key(format.kind, format.text));
  if (known == entry_of_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, known->second);
  return entries_.front().annotations;
}

void KnownFormats::Add(const FormatSpec& format, std::vector<std::string> annotations) {
  const std::lock_guard<std::mutex> lock(lock_);
  if (entry_of_.contains(Key(format.kind, format.text))) return;
  entries_.push_front({format, std::move(annotations)});
  entry_of_.emplace(Key(format.kind, entries_.front().format.text), entries_.begin());
  bytes_ += format.text.size();
  while (entries_.size() > 1 && (entries_.size() > kMostKnown || bytes_ > kMostKnownBytes)) {
    const FormatSpec& oldest = entries_.back().format;
    bytes_ -= oldest.text.size();
    entry_of_.erase(Key(oldest.kind, oldest.text));
    entries_.pop_back();
  }
}

}  // namespace coppice::coordinator
