#include "tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "model_files/model_files.h"
#include "tokenizer/bpe_merge.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/longest_prefix.h"
#include "tokenizer/sentencepiece_model.pb.h"
#include "tokenizer/special_texts.h"
#include "tokenizer/token_bound.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

using sentencepiece_file::Model;
using sentencepiece_file::Piece;
using sentencepiece_file::Trainer;

constexpr absl::string_view kSpace = "\xE2\x96\x81";  // U+2581, a space inside a piece

class SentencePieceTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(Model model, const std::string& path,
                                                           const SpecialTokenSettings& settings);

  int vocab_size() const override { return model_.piece_size(); }
  TokenId bos_id() const override { return bos_id_; }
  std::vector<TokenId> eos_ids() const override { return eos_ids_; }
  bool IsSpecial(TokenId id) const override {
    if (id < 0 || id >= vocab_size()) return false;
    return Kind(id) == Piece::CONTROL || Kind(id) == Piece::UNKNOWN;
  }
  std::vector<TokenId> Encode(absl::string_view text, bool add_special_tokens) const override;
  std::vector<TokenId> EncodeChat(absl::string_view text, absl::Span<const size_t> literal,
                                  bool add_special_tokens) const override;
  size_t FewestTokens(absl::string_view text) const override {
    return bound_.Fewest(text, [this](absl::string_view c) { return HasCharacter(c); });
  }
  std::vector<size_t> FindSpecial(absl::string_view text) const override {
    return special_texts_.Find(text);
  }
  std::string TokenBytes(TokenId id, bool skip_special) const override;
  int LeadingSpacesDropped() const override {
    if (model_.normalizer().remove_extra_whitespaces()) return INT_MAX;
    return model_.normalizer().add_dummy_prefix() ? 1 : 0;
  }

 private:
  // Whether a character always gets tokens that stand for it.
  bool HasCharacter(absl::string_view c) const {
    if (c == kSpace && model_.normalizer().remove_extra_whitespaces()) return false;
    return c != " " && (model_.trainer().byte_fallback() || mergeable_.count(c) > 0);
  }
  Piece::Kind Kind(TokenId id) const { return model_.piece(id).kind(); }
  absl::Status IndexPieces(const std::string& path);
  absl::Status SetSpecialTokens(const std::string& path, const SpecialTokenSettings& settings);
  std::string Normalize(absl::string_view text, bool prefix) const;
  // Appends the pieces of a text without special tokens. prefix: it gets the space that the model
  // puts before a text.
  void AppendText(absl::string_view text, bool prefix, std::vector<TokenId>* ids) const;
  std::vector<BpeSymbol> Symbols(absl::string_view text) const;
  // For each piece that is marked unused: the length in bytes of the left part of its merge.
  using UnusedSplits = absl::flat_hash_map<absl::string_view, int32_t>;
  // Splits a piece that is marked unused into the two parts that it was merged from.
  void AppendPiece(absl::string_view piece, const UnusedSplits& splits,
                   std::vector<TokenId>* ids) const;
  void AppendUnknown(absl::string_view piece, std::vector<TokenId>* ids) const;
  BpeMerge<float> FindMerge(absl::string_view merged) const;

  Model model_;
  absl::flat_hash_map<absl::string_view, TokenId> mergeable_;  // views into model_
  LongestPrefix user_defined_, special_;                       // views into model_
  TokenId byte_id_[256];                                       // -1 = no such piece
  SpecialTexts special_texts_;
  TokenId unk_id_ = -1, bos_id_ = -1;
  std::vector<TokenId> eos_ids_;
  bool add_bos_ = false, add_eos_ = false;
  bool prefix_everywhere_ = true;  // also after a special token inside a text
  TokenBound bound_;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Create(
    Model model, const std::string& path, const SpecialTokenSettings& settings) {
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
  };
  if (!model.has_trainer() || !model.has_normalizer() || model.piece_size() == 0) {
    return refuse("expected pieces, a trainer and a normalizer specification (truncated file?)");
  }
  if (model.trainer().model_kind() != Trainer::BPE) {
    return refuse(absl::StrCat("expected a SentencePiece model of type BPE, got ",
                               Trainer::ModelKind_Name(model.trainer().model_kind())));
  }
  if (!model.normalizer().character_map().empty()) {
    return refuse(
        absl::StrCat("expected the identity normalizer, got ", model.normalizer().name()));
  }
  if (!model.normalizer().escape_whitespaces() || model.trainer().whitespace_as_suffix()) {
    return refuse("expected whitespace as a prefix mark (escape_whitespaces, no suffix)");
  }
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  tokenizer->model_ = std::move(model);
  COPPICE_RETURN_IF_ERROR(tokenizer->IndexPieces(path));
  COPPICE_RETURN_IF_ERROR(tokenizer->SetSpecialTokens(path, settings));
  return tokenizer;
}

absl::Status SentencePieceTokenizer::IndexPieces(const std::string& path) {
  std::fill(std::begin(byte_id_), std::end(byte_id_), -1);
  std::vector<std::string> special_texts;
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const absl::string_view text = model_.piece(id).text();
    if (text.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": piece ", id, " is empty"));
    }
    switch (Kind(id)) {
      case Piece::UNKNOWN:
        unk_id_ = id;
        special_.Add(text, id);
        special_texts.emplace_back(text);
        break;
      case Piece::CONTROL:
        special_.Add(text, id);
        special_texts.emplace_back(text);
        break;
      case Piece::BYTE: {
        const int byte = ByteOfToken(text);
        if (byte < 0) {
          return absl::InvalidArgumentError(
              absl::StrCat(path, ": byte piece ", id, ": expected <0xNN>"));
        }
        byte_id_[byte] = id;
        break;
      }
      default:
        if (!mergeable_.emplace(text, id).second) {
          return absl::InvalidArgumentError(absl::StrCat(path, ": piece ", id, " appears twice"));
        }
        if (Kind(id) == Piece::USER_DEFINED) user_defined_.Add(text, id);
    }
  }
  for (const Piece& piece : model_.piece()) bound_.AddToken(piece.text());
  // Without byte pieces, a run of unknown characters is one token.
  if (model_.trainer().byte_fallback() && !model_.normalizer().remove_extra_whitespaces())
    bound_.of_all = bound_.longest();
  for (int c = 0; c < 128; ++c) {
    const char text = static_cast<char>(c);
    bound_.kept[c] = HasCharacter(absl::string_view(&text, 1));
  }
  auto made = SpecialTexts::Make(special_texts);
  if (!made.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", made.status().message()));
  special_texts_ = *std::move(made);
  if (unk_id_ < 0) return absl::InvalidArgumentError(absl::StrCat(path, ": no unknown piece"));
  if (model_.trainer().byte_fallback() && std::count(byte_id_, byte_id_ + 256, -1) > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": byte_fallback without 256 byte pieces"));
  }
  return absl::OkStatus();
}

absl::Status SentencePieceTokenizer::SetSpecialTokens(const std::string& path,
                                                      const SpecialTokenSettings& settings) {
  const auto within = [&](TokenId id) { return id >= 0 && id < vocab_size(); };
  const auto control = [&](TokenId id) { return within(id) && Kind(id) == Piece::CONTROL; };
  const TokenId own_bos = model_.trainer().bos_id(), own_eos = model_.trainer().eos_id();
  bos_id_ = settings.bos_id.value_or(control(own_bos) ? own_bos : -1);
  eos_ids_ = settings.eos_ids;
  if (eos_ids_.empty() && control(own_eos)) eos_ids_ = {own_eos};
  for (const TokenId id : eos_ids_) {
    if (within(id)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", vocab_size(), " pieces, but config.json has eos_token_id ", id));
  }
  if (bos_id_ >= vocab_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", vocab_size(), " pieces, but config.json has bos_token_id ", bos_id_));
  }
  add_bos_ = bos_id_ >= 0 && settings.add_bos.value_or(true);
  add_eos_ = !eos_ids_.empty() && settings.add_eos.value_or(false);
  prefix_everywhere_ = settings.legacy.value_or(true);
  return absl::OkStatus();
}

std::string SentencePieceTokenizer::Normalize(absl::string_view text, bool prefix) const {
  std::string valid = ValidUtf8(text);
  absl::string_view rest = valid;
  const bool collapse = model_.normalizer().remove_extra_whitespaces();
  if (collapse) {
    while (absl::ConsumePrefix(&rest, " ")) {
    }
  }
  std::string out;
  if (rest.empty()) return out;
  if (prefix && model_.normalizer().add_dummy_prefix()) out.append(kSpace.data(), kSpace.size());
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] != ' ') {
      out.push_back(rest[i]);
    } else if (!collapse || rest[i - 1] != ' ') {
      out.append(kSpace.data(), kSpace.size());
    }
  }
  if (collapse) {
    absl::string_view kept = out;
    while (absl::ConsumeSuffix(&kept, kSpace)) {
    }
    out.resize(kept.size());
  }
  return out;
}

std::vector<BpeSymbol> SentencePieceTokenizer::Symbols(absl::string_view text) const {
  std::vector<BpeSymbol> symbols;
  for (size_t i = 0; i < text.size();) {
    const size_t user_defined = user_defined_.At(text.substr(i), text.size()).length;
    const size_t length = user_defined ? user_defined : NextUtf8Char(text.substr(i)).length;
    const auto it = mergeable_.find(text.substr(i, length));
    symbols.push_back({.begin = static_cast<int32_t>(i),
                       .length = static_cast<int32_t>(length),
                       .id = it == mergeable_.end() ? -1 : it->second,
                       .frozen = user_defined > 0});
    i += length;
  }
  return symbols;
}

BpeMerge<float> SentencePieceTokenizer::FindMerge(absl::string_view merged) const {
  const auto it = mergeable_.find(merged);
  if (it == mergeable_.end()) return {};
  return {.priority = -model_.piece(it->second).score(), .id = it->second};
}

void SentencePieceTokenizer::AppendUnknown(absl::string_view piece,
                                           std::vector<TokenId>* ids) const {
  if (model_.trainer().byte_fallback()) {
    for (const char c : piece) ids->push_back(byte_id_[static_cast<uint8_t>(c)]);
  } else if (ids->empty() || ids->back() != unk_id_) {  // a run of unknown characters is one token
    ids->push_back(unk_id_);
  }
}

void SentencePieceTokenizer::AppendPiece(absl::string_view piece, const UnusedSplits& splits,
                                         std::vector<TokenId>* ids) const {
  const auto it = mergeable_.find(piece);
  if (it == mergeable_.end()) return AppendUnknown(piece, ids);
  const auto split = splits.find(piece);
  if (split == splits.end()) {
    ids->push_back(it->second);
    return;
  }
  AppendPiece(piece.substr(0, split->second), splits, ids);
  AppendPiece(piece.substr(split->second), splits, ids);
}

void SentencePieceTokenizer::AppendText(absl::string_view text, bool prefix,
                                        std::vector<TokenId>* ids) const {
  const std::string normalized = Normalize(text, prefix);
  const absl::string_view view = normalized;
  UnusedSplits splits;
  const auto find = [&](const BpeSymbol& left, const BpeSymbol& right) {
    const absl::string_view merged = view.substr(left.begin, left.length + right.length);
    const BpeMerge<float> merge = FindMerge(merged);
    if (merge.id >= 0 && Kind(merge.id) == Piece::UNUSED) splits[merged] = left.length;
    return merge;
  };
  for (const BpeSymbol& symbol : MergeSymbols<float>(Symbols(view), find)) {
    AppendPiece(view.substr(symbol.begin, symbol.length), splits, ids);
  }
}

std::vector<TokenId> SentencePieceTokenizer::Encode(absl::string_view text,
                                                    bool add_special_tokens) const {
  std::vector<TokenId> ids;
  if (add_special_tokens && add_bos_) ids.push_back(bos_id_);
  AppendText(text, /*prefix=*/true, &ids);
  if (add_special_tokens && add_eos_) ids.push_back(eos_ids_[0]);
  return ids;
}

std::vector<TokenId> SentencePieceTokenizer::EncodeChat(absl::string_view text,
                                                        absl::Span<const size_t> literal,
                                                        bool add_special_tokens) const {
  std::vector<TokenId> ids;
  if (add_special_tokens && add_bos_) ids.push_back(bos_id_);
  size_t done = 0;
  const auto append_text = [&](size_t end) {
    if (done == end) return;
    AppendText(text.substr(done, end - done), done == 0 || prefix_everywhere_, &ids);
  };
  auto next = literal.begin();  // the first literal byte that is not before `at`
  for (size_t at = 0; at < text.size();) {
    while (next != literal.end() && *next < at) ++next;
    const LongestPrefix::Found special =
        special_.At(text.substr(at), next == literal.end() ? text.size() : *next - at);
    if (special.length == 0) {
      ++at;
      continue;
    }
    append_text(at);
    ids.push_back(special.id);
    done = at += special.length;
  }
  append_text(text.size());
  if (add_special_tokens && add_eos_) ids.push_back(eos_ids_[0]);
  return ids;
}

std::string SentencePieceTokenizer::TokenBytes(TokenId id, bool skip_special) const {
  if (id < 0 || id >= vocab_size() || (skip_special && IsSpecial(id))) return "";
  const std::string& text = model_.piece(id).text();
  if (Kind(id) == Piece::BYTE) return std::string(1, static_cast<char>(ByteOfToken(text)));
  return absl::StrReplaceAll(text, {{kSpace, " "}});
}

// Whether the first line is a token in base64, a space, and the token's rank.
bool IsTiktokenTable(absl::string_view bytes) {
  const std::pair<absl::string_view, absl::string_view> line =
      absl::StrSplit(bytes.substr(0, bytes.substr(0, 1024).find('\n')), absl::MaxSplits(' ', 1));
  std::string token;
  int rank = 0;
  return !line.first.empty() && absl::Base64Unescape(line.first, &token) &&
         absl::SimpleAtoi(line.second, &rank);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePieceTokenizer(
    const std::string& path, const SpecialTokenSettings& settings) {
  COPPICE_ASSIGN_OR_RETURN(const std::string bytes,
                           model_files::ReadModelText(path, kMostTableBytes));
  if (IsTiktokenTable(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": a table of tiktoken is not supported, expected a SentencePiece model; the "
                     "tokenizer.json of this model, in the same folder, serves instead"));
  }
  Model model;
  if (!model.ParseFromString(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a SentencePiece model, got ",
                                                   bytes.size(),
                                                   " bytes that are none (truncated file?)"));
  }
  return SentencePieceTokenizer::Create(std::move(model), path, settings);
}

}  // namespace coppice::tokenizer
