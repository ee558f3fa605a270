// tokenizer.json files whose model is BPE: byte-level (GPT-2, Llama 3, Qwen2) or SentencePiece-like
// with byte fallback (Llama 2, Mistral). Immutable after loading and thread-safe. The order of work
// is that of Hugging Face tokenizers: added tokens, normalizer, pre-tokenizer, BPE, post-processor.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/bpe_tables.h"
#include "tokenizer/model_folder.h"
#include "tokenizer/tokenizer.h"

namespace coppice::tokenizer {

// Errors name path, the component and what was expected. Truncation and padding in the file are
// settings for batches and have no effect here.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpeTokenizer(const std::string& path,
                                                            const SpecialTokenSettings& settings);
// path: the file that errors name.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(TokenizerFile file,
                                                            const std::string& path,
                                                            const SpecialTokenSettings& settings);

}  // namespace coppice::tokenizer
