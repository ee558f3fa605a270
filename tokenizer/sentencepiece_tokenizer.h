// SentencePiece tokenizer.model files of BPE kind (the Llama family's). Immutable after loading and
// thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/model_folder.h"
#include "tokenizer/tokenizer.h"

namespace coppice::tokenizer {

// BOS: settings.bos_id, else the model's own; added unless settings.add_bos is false. Errors name
// path and expectation.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePieceTokenizer(
    const std::string& path, const SpecialTokenSettings& settings);

}  // namespace coppice::tokenizer
