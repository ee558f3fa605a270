#include "tokenizer/token_decoder.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/json_pattern.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

}  // namespace

absl::StatusOr<TokenDecoder> TokenDecoder::FromJson(const Json& json) {
  TokenDecoder decoder;
  if (json.is_null()) {
    return absl::InvalidArgumentError(
        "decoder: expected ByteLevel, Metaspace or Sequence, got null");
  }
  COPPICE_RETURN_IF_ERROR(decoder.Add(json, 0));
  return decoder;
}

absl::Status TokenDecoder::Add(const Json& json, int depth) {
  const std::string type = json.at("type").get<std::string>();
  if (type == "Sequence" && depth < kMaxNesting) {
    for (const Json& part : json.at("decoders")) COPPICE_RETURN_IF_ERROR(Add(part, depth + 1));
  } else if (type == "ByteLevel") {
    byte_level_ = true;
  } else if (type == "ByteFallback") {
    byte_fallback_ = true;
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Metaspace") {
    const bool old_flag = json.value("add_prefix_space", true);
    const std::string scheme = json.value("prepend_scheme", old_flag ? "always" : "never");
    replacements_.emplace_back(json.at("replacement").get<std::string>(), " ");
    leading_spaces_dropped_ = scheme == "never" ? 0 : 1;
  } else if (type == "Replace" && json.at("pattern").contains("String")) {
    const std::string from = json["pattern"]["String"].get<std::string>();
    if (from.empty()) return absl::InvalidArgumentError("decoder: Replace: the pattern is empty");
    replacements_.emplace_back(from, json.at("content").get<std::string>());
  } else if (type == "Strip") {
    return AddStrip(json);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("decoder: type ", type,
                     " is not supported, expected ByteLevel, Metaspace, or a Sequence of ",
                     "those, Replace of a String, ByteFallback, Fuse and Strip"));
  }
  return absl::OkStatus();
}

// Supports only what an incremental decoder can do: drop spaces at the start of the whole text.
absl::Status TokenDecoder::AddStrip(const Json& json) {
  const int start = json.at("start").get<int>();
  if (!fused_ || json.at("content") != " " || json.at("stop") != 0 || start < 0) {
    return absl::InvalidArgumentError("decoder: Strip: expected content \" \", stop 0, after Fuse");
  }
  leading_spaces_dropped_ = start;
  return absl::OkStatus();
}

std::string TokenDecoder::AddedTokenText(absl::string_view token) const {
  std::string text(token);
  for (const auto& [from, to] : replacements_) absl::StrReplaceAll({{from, to}}, &text);
  return text;
}

std::string TokenDecoder::Bytes(absl::string_view token) const {
  if (byte_fallback_) {
    const int byte = ByteOfToken(token);
    if (byte >= 0) return std::string(1, static_cast<char>(byte));
  }
  const std::string text = AddedTokenText(token);
  return byte_level_ ? ByteLevelToBytes(text).value_or(text) : text;
}

}  // namespace coppice::tokenizer
