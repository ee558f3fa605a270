// The model of a tokenizer.json: a vocabulary and ranked merges; words to ids. Immutable and
// thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "tokenizer/bpe_merge.h"
#include "tokenizer/bpe_tables.h"
#include "tokenizer/token_bound.h"

namespace coppice::tokenizer {

// "<0xNN>" -> the byte, or -1.
int ByteOfToken(absl::string_view token);

class BpeModel {
 public:
  // json: the model of a tokenizer.json. Errors name the field and, for a merge, its number.
  static absl::StatusOr<BpeModel> FromJson(const nlohmann::json& json, BpeTables tables);

  // By id; "" for an id that is not in the vocabulary.
  const std::vector<std::string>& tokens() const { return tokens_; }
  TokenId Find(absl::string_view token) const;  // -1 = none
  bool byte_fallback() const { return byte_fallback_; }
  // byte_level: words are written in the byte alphabet.
  void AddTokensTo(TokenBound* bound, bool byte_level) const;
  // Whether a character always gets tokens that stand for it, and whether every byte does.
  bool HasCharacter(absl::string_view c, bool byte_level) const;
  bool HasEveryByte(bool byte_level) const;

  // Encode makes none of these tokens any more, even if a word is spelled like one.
  void KeepOutOfWords(absl::Span<const TokenId> ids);

  // word: valid UTF-8. A character that is not in the vocabulary becomes its byte tokens. If there
  // are none, it becomes the unknown token (one for a whole run, with fuse_unk), or nothing if
  // there is none.
  void Encode(absl::string_view word, std::vector<TokenId>* ids) const;

 private:
  struct Ranked {
    int32_t rank;
    TokenId id;
  };
  absl::Status SetVocab(std::vector<std::pair<std::string, TokenId>> vocab);
  absl::Status SetMerges(const std::vector<std::pair<std::string, std::string>>& merges);
  std::vector<BpeSymbol> Symbols(absl::string_view word) const;

  std::vector<std::string> tokens_;
  absl::flat_hash_map<std::string, TokenId> id_of_;
  absl::flat_hash_map<uint64_t, Ranked> merges_;  // key: left id << 32 | right id
  TokenId unk_id_ = -1;
  TokenId byte_id_[256];
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace coppice::tokenizer
