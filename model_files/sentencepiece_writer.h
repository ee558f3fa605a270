// Writes a tokenizer.model, the Protobuf message that tokenizer/sentencepiece_model.proto
// describes: a vocabulary of BPE kind. Called by gguf_tokenizer.cc. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::model_files {

struct SentencePieceSettings {
  bool byte_fallback = false;
  int64_t unknown = 0, bos = -1, eos = -1;  // ids; -1: none
  bool space_first = true;                  // a space is put before a text
  bool joins_spaces = false;                // runs of spaces become one
};

class SentencePieceWriter {
 public:
  // The next piece. kind: as Piece::Kind, 1 to 6.
  void AddPiece(absl::string_view text, float score, int kind);
  std::string Finish(const SentencePieceSettings& settings) &&;

 private:
  std::string message_;
  int64_t pieces_ = 0;
};

}  // namespace coppice::model_files
