// The post_processor of a tokenizer.json: the special tokens before and after a single text. Built
// at start-up by the BPE tokenizer. Plain data.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"

namespace coppice::tokenizer {

struct PostProcessor {
  std::vector<TokenId> before, after;

  // json: null, Sequence, ByteLevel, TemplateProcessing, RobertaProcessing or BertProcessing.
  // Errors name the component.
  static absl::StatusOr<PostProcessor> FromJson(const nlohmann::json& json, int depth = 0);
};

}  // namespace coppice::tokenizer
