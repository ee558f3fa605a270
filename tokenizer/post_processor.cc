#include "tokenizer/post_processor.h"

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "tokenizer/json_pattern.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

// single: [{"SpecialToken": {"id": name}}, {"Sequence": {"id": "A"}}, ...].
absl::StatusOr<PostProcessor> FromTemplate(const Json& json) {
  PostProcessor result;
  bool after_text = false;
  for (const Json& piece : json.at("single")) {
    if (piece.contains("Sequence")) {
      if (after_text) {
        return absl::InvalidArgumentError("post_processor: single: expected one Sequence, got two");
      }
      after_text = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").get<std::string>();
    for (const Json& id : json.at("special_tokens").at(name).at("ids")) {
      (after_text ? result.after : result.before).push_back(id.get<TokenId>());
    }
  }
  if (!after_text) {
    return absl::InvalidArgumentError("post_processor: single: expected a Sequence, got none");
  }
  return result;
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const Json& json, int depth) {
  PostProcessor result;
  if (json.is_null()) return result;
  const std::string type = json.at("type").get<std::string>();
  if (type == "ByteLevel") return result;  // changes only offsets
  if (type == "TemplateProcessing") return FromTemplate(json);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    result.before = {json.at("cls").at(1).get<TokenId>()};
    result.after = {json.at("sep").at(1).get<TokenId>()};
    return result;
  }
  if (type == "Sequence" && depth < kMaxNesting) {
    for (const Json& part : json.at("processors")) {
      COPPICE_ASSIGN_OR_RETURN(const PostProcessor inner, FromJson(part, depth + 1));
      result.before.insert(result.before.begin(), inner.before.begin(), inner.before.end());
      result.after.insert(result.after.end(), inner.after.begin(), inner.after.end());
    }
    return result;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("post_processor: type ", type,
                   " is not supported, expected Sequence, ByteLevel, TemplateProcessing, "
                   "RobertaProcessing or BertProcessing"));
}

}  // namespace coppice::tokenizer
