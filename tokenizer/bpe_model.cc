#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

bool IsSet(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && !it->is_null() && *it != Json("") && *it != Json(0.0);
}

uint64_t PairKey(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

int ByteOfToken(absl::string_view token) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

absl::StatusOr<BpeModel> BpeModel::FromJson(const Json& json, BpeTables tables) {
  // Old files have no type. A model with merges is BPE.
  const std::string type = json.value("type", json.contains("merges") ? "BPE" : "unknown");
  if (type != "BPE") {
    return absl::InvalidArgumentError(
        absl::StrCat("model: type ", type, " is not supported, expected BPE"));
  }
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (IsSet(json, key)) {
      return absl::InvalidArgumentError(absl::StrCat("model: ", key, " is not supported"));
    }
  }
  BpeModel model;
  if (!json.at("vocab").is_object() || tables.vocab.empty())
    return absl::InvalidArgumentError("model: vocab: expected an object of token to id");
  if (!json.at("merges").is_array())
    return absl::InvalidArgumentError("model: merges: expected a list");
  COPPICE_RETURN_IF_ERROR(model.SetVocab(std::move(tables.vocab)));
  COPPICE_RETURN_IF_ERROR(model.SetMerges(tables.merges));
  if (IsSet(json, "unk_token")) {
    const std::string unk = json["unk_token"].get<std::string>();
    model.unk_id_ = model.Find(unk);
    if (model.unk_id_ < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("model: unk_token ", unk, " is not in the vocabulary"));
    }
  }
  model.fuse_unk_ = json.value("fuse_unk", false);
  model.byte_fallback_ = json.value("byte_fallback", false);
  model.ignore_merges_ = json.value("ignore_merges", false);
  for (int byte = 0; byte < 256; ++byte) {
    model.byte_id_[byte] = model.Find(absl::StrFormat("<0x%02X>", byte));
  }
  return model;
}

absl::Status BpeModel::SetVocab(std::vector<std::pair<std::string, TokenId>> vocab) {
  id_of_.reserve(vocab.size());
  for (auto& [token, id] : vocab) {
    const auto index = static_cast<size_t>(id);
    if (index >= tokens_.size()) tokens_.resize(std::max(index + 1, vocab.size()));
    if (!tokens_[index].empty()) {
      return absl::InvalidArgumentError(absl::StrCat("model: vocab: id ", id, " is given to both ",
                                                     tokens_[index], " and ", token));
    }
    tokens_[index] = token;
    if (!id_of_.emplace(std::move(token), id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("model: vocab: ", tokens_[index], " appears twice"));
    }
  }
  while (!tokens_.empty() && tokens_.back().empty()) tokens_.pop_back();
  if (tokens_.empty()) return absl::InvalidArgumentError("model: vocab: no token has a text");
  return absl::OkStatus();
}

absl::Status BpeModel::SetMerges(const std::vector<std::pair<std::string, std::string>>& merges) {
  merges_.reserve(merges.size());
  std::string both;
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left_text, right_text] = merges[i];
    both.assign(left_text).append(right_text);
    const TokenId left = Find(left_text), right = Find(right_text), merged = Find(both);
    if (left < 0 || right < 0 || merged < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("model: merges[", i, "]: ", left_text, " + ", right_text, ": ",
                       left < 0    ? left_text
                       : right < 0 ? right_text
                                   : both,
                       " is not there, expected all three in the vocabulary"));
    }
    merges_[PairKey(left, right)] = {static_cast<int32_t>(i), merged};
  }
  return absl::OkStatus();
}

TokenId BpeModel::Find(absl::string_view token) const {
  const auto it = id_of_.find(token);
  return it == id_of_.end() ? -1 : it->second;
}

void BpeModel::KeepOutOfWords(absl::Span<const TokenId> ids) {
  const absl::flat_hash_set<TokenId> kept_out(ids.begin(), ids.end());
  for (const TokenId id : kept_out) {
    const auto index = static_cast<size_t>(id);
    if (index < tokens_.size()) id_of_.erase(tokens_[index]);
  }
  absl::erase_if(merges_, [&](const auto& merge) { return kept_out.count(merge.second.id) > 0; });
}

bool BpeModel::HasCharacter(absl::string_view c, bool byte_level) const {
  const auto has_bytes = [&](auto has) { return std::all_of(c.begin(), c.end(), has); };
  if (byte_level) {
    return has_bytes(
        [&](char byte) { return Find(BytesToByteLevel(absl::string_view(&byte, 1))) >= 0; });
  }
  if (Find(c) >= 0 || (unk_id_ >= 0 && !fuse_unk_)) return true;
  return byte_fallback_ &&
         has_bytes([&](char byte) { return byte_id_[static_cast<uint8_t>(byte)] >= 0; });
}

bool BpeModel::HasEveryByte(bool byte_level) const {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const bool has_token = byte_level ? Find(BytesToByteLevel(absl::string_view(&text, 1))) >= 0
                                      : byte_fallback_ && byte_id_[byte] >= 0;
    if (!has_token) return false;
  }
  return true;
}

void BpeModel::AddTokensTo(TokenBound* bound, bool byte_level) const {
  // A merged token is spelled like the tokens that it is made of, one after the other.
  for (const std::string& token : tokens_) {
    const std::optional<std::string> bytes =
        byte_level ? ByteLevelToBytes(token) : std::optional<std::string>(token);
    if (bytes) bound->AddToken(*bytes);  // else no word has it
  }
}

std::vector<BpeSymbol> BpeModel::Symbols(absl::string_view word) const {
  std::vector<BpeSymbol> symbols;
  bool after_unknown = false;
  const auto add = [&](size_t begin, size_t length, TokenId id) {
    symbols.push_back(
        {.begin = static_cast<int32_t>(begin), .length = static_cast<int32_t>(length), .id = id});
    after_unknown = false;
  };
  for (size_t at = 0; at < word.size();) {
    const size_t length = NextUtf8Char(word.substr(at)).length;
    const absl::string_view bytes = word.substr(at, length);
    const TokenId id = Find(bytes);
    const bool has_bytes = byte_fallback_ && std::all_of(bytes.begin(), bytes.end(), [&](char c) {
                             return byte_id_[static_cast<uint8_t>(c)] >= 0;
                           });
    if (id >= 0) {
      add(at, length, id);
    } else if (has_bytes) {
      for (size_t i = 0; i < length; ++i) {
        add(at + i, 1, byte_id_[static_cast<uint8_t>(bytes[i])]);
      }
    } else if (unk_id_ >= 0 && fuse_unk_ && after_unknown) {
      symbols.back().length += static_cast<int32_t>(length);
    } else if (unk_id_ >= 0) {
      add(at, length, unk_id_);
      after_unknown = true;
    }
    at += length;
  }
  return symbols;
}

void BpeModel::Encode(absl::string_view word, std::vector<TokenId>* ids) const {
  if (ignore_merges_) {
    const TokenId id = Find(word);
    if (id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  const auto find = [&](const BpeSymbol& left, const BpeSymbol& right) -> BpeMerge<int32_t> {
    const auto it = merges_.find(PairKey(left.id, right.id));
    if (it == merges_.end()) return {};
    return {.priority = it->second.rank, .id = it->second.id};
  };
  for (const BpeSymbol& symbol : MergeSymbols<int32_t>(Symbols(word), find)) {
    ids->push_back(symbol.id);
  }
}

}  // namespace coppice::tokenizer
