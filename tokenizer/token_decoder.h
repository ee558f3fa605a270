// The decoder of a tokenizer.json: from a token's string to its bytes. Built at start-up by the BPE
// tokenizer. Immutable and thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

class TokenDecoder {
 public:
  // json: ByteLevel, Metaspace, or a Sequence of those, Replace, ByteFallback, Fuse, Strip. Errors
  // name the component.
  static absl::StatusOr<TokenDecoder> FromJson(const nlohmann::json& json);

  std::string Bytes(absl::string_view token) const;
  std::string AddedTokenText(absl::string_view token) const;  // never in the byte alphabet
  // Leading spaces dropped from a whole text.
  int leading_spaces_dropped() const { return leading_spaces_dropped_; }

 private:
  absl::Status Add(const nlohmann::json& json, int depth);
  absl::Status AddStrip(const nlohmann::json& json);

  std::vector<std::pair<std::string, std::string>> replacements_;  // in order
  bool byte_level_ = false, byte_fallback_ = false, fused_ = false;
  int leading_spaces_dropped_ = 0;
};

}  // namespace coppice::tokenizer
