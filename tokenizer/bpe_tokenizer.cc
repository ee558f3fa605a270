#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "model_files/model_files.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/special_texts.h"
#include "tokenizer/token_bound.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

class BpeTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromFile(TokenizerFile file,
                                                             const SpecialTokenSettings& settings);

  int vocab_size() const override { return static_cast<int>(bytes_.size()); }
  TokenId bos_id() const override { return bos_id_; }
  std::vector<TokenId> eos_ids() const override { return eos_ids_; }
  bool IsSpecial(TokenId id) const override { return id >= 0 && id < vocab_size() && special_[id]; }
  std::vector<TokenId> Encode(absl::string_view text, bool add_special_tokens) const override {
    return EncodeChat(text, {}, add_special_tokens);  // special tokens count in every text
  }
  std::vector<TokenId> EncodeChat(absl::string_view text, absl::Span<const size_t> literal,
                                  bool add_special_tokens) const override;
  size_t FewestTokens(absl::string_view text) const override {
    return bound_.Fewest(text, [this](absl::string_view c) { return KeepsRun(c); });
  }
  std::vector<size_t> FindSpecial(absl::string_view text) const override;
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    if (id < 0 || id >= vocab_size() || (skip_special && special_[id])) return "";
    return bytes_[id];
  }
  int LeadingSpacesDropped() const override { return leading_spaces_dropped_; }

 private:
  absl::Status ReadComponents(TokenizerFile file, const SpecialTokenSettings& settings);
  TokenBound MakeBound() const;
  bool KeepsRun(absl::string_view c) const;  // as TokenBound::Fewest says
  absl::Status FillBytes(const TokenDecoder& decoder);
  absl::Status SetSpecialTokens(const SpecialTokenSettings& settings);
  TokenId Find(absl::string_view token) const;
  // Appends the ids of a text without special tokens that are searched for before normalization.
  void EncodePart(absl::string_view text, absl::Span<const size_t> literal, bool at_text_start,
                  std::vector<TokenId>* ids) const;
  std::vector<size_t> NormalizedOffsets(absl::string_view text, absl::Span<const size_t> literal,
                                        absl::string_view normalized) const;

  BpeModel model_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokens added_;
  SpecialTexts special_texts_;
  PostProcessor post_processor_;
  std::vector<std::string> bytes_;  // [vocab_size] the bytes of each token
  std::vector<bool> special_;       // [vocab_size]
  TokenId bos_id_ = -1;
  std::vector<TokenId> eos_ids_;
  int leading_spaces_dropped_ = 0;
  TokenBound bound_;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::FromFile(
    TokenizerFile file, const SpecialTokenSettings& settings) {
  auto tokenizer = std::make_unique<BpeTokenizer>();
  COPPICE_RETURN_IF_ERROR(tokenizer->ReadComponents(std::move(file), settings));
  COPPICE_RETURN_IF_ERROR(tokenizer->SetSpecialTokens(settings));
  return tokenizer;
}

absl::Status BpeTokenizer::ReadComponents(TokenizerFile file,
                                          const SpecialTokenSettings& settings) {
  const Json& json = file.json;
  const auto component = [&](const char* key) { return json.value(key, Json()); };
  COPPICE_ASSIGN_OR_RETURN(model_, BpeModel::FromJson(json.at("model"), std::move(file.tables)));
  COPPICE_ASSIGN_OR_RETURN(normalizer_, Normalizer::FromJson(component("normalizer")));
  COPPICE_ASSIGN_OR_RETURN(pre_tokenizer_, PreTokenizer::FromJson(component("pre_tokenizer")));
  COPPICE_ASSIGN_OR_RETURN(added_, AddedTokens::FromJson(component("added_tokens"), normalizer_));
  COPPICE_ASSIGN_OR_RETURN(post_processor_, PostProcessor::FromJson(component("post_processor")));
  COPPICE_ASSIGN_OR_RETURN(const TokenDecoder decoder,
                           TokenDecoder::FromJson(component("decoder")));
  leading_spaces_dropped_ = decoder.leading_spaces_dropped();
  COPPICE_RETURN_IF_ERROR(FillBytes(decoder));
  added_.SetControl(settings.bos_token);
  added_.SetControl(settings.eos_token);
  std::vector<std::string> special;
  std::vector<TokenId> ids;
  for (const AddedToken& token : added_.tokens()) {
    if (!token.control) continue;
    special.insert(special.end(), {token.content, token.text});
    ids.push_back(token.id);
  }
  COPPICE_ASSIGN_OR_RETURN(special_texts_, SpecialTexts::Make(special));
  model_.KeepOutOfWords(ids);
  bound_ = MakeBound();
  return absl::OkStatus();
}

TokenBound BpeTokenizer::MakeBound() const {
  const bool byte_level = pre_tokenizer_.byte_level();
  TokenBound bound;
  model_.AddTokensTo(&bound, byte_level);
  for (const AddedToken& token : added_.tokens()) {
    bound.AddToken(token.content);
    bound.AddToken(token.text);
  }
  if (model_.HasEveryByte(byte_level) && pre_tokenizer_.keeps_all() && !added_.strips())
    bound.of_all = bound.longest() * normalizer_.MostShrinking();
  for (int i = 0; i < 128; ++i) {
    const char c = static_cast<char>(i);
    bound.kept[i] = model_.HasCharacter(absl::string_view(&c, 1), byte_level) &&
                    normalizer_.Keeps(c) && pre_tokenizer_.Keeps(c) &&
                    !(added_.strips() && absl::ascii_isspace(c));
  }
  return bound;
}

bool BpeTokenizer::KeepsRun(absl::string_view c) const {
  if (added_.strips() && IsWhiteSpace(NextUtf8Char(c).code_point)) return false;
  return normalizer_.KeepsRun(c) && pre_tokenizer_.Keeps(c[0]) &&
         model_.HasCharacter(c, pre_tokenizer_.byte_level());
}

absl::Status BpeTokenizer::FillBytes(const TokenDecoder& decoder) {
  for (const std::string& token : model_.tokens()) bytes_.push_back(decoder.Bytes(token));
  special_.assign(bytes_.size(), false);
  for (const AddedToken& token : added_.tokens()) {
    const TokenId in_model = model_.Find(token.content);
    const bool taken = static_cast<size_t>(token.id) < model_.tokens().size() &&
                       !model_.tokens()[token.id].empty() && in_model != token.id;
    if (token.id >= BpeTables::kMaxVocab || taken || (in_model >= 0 && in_model != token.id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens: ", token.content, ": id ", token.id,
                       " does not agree with the vocabulary of the model"));
    }
    if (token.id >= vocab_size()) {
      bytes_.resize(token.id + 1);
      special_.resize(token.id + 1, false);
    }
    bytes_[token.id] = decoder.AddedTokenText(token.text);
    special_[token.id] = token.special;
  }
  return absl::OkStatus();
}

TokenId BpeTokenizer::Find(absl::string_view token) const {
  for (const AddedToken& added : added_.tokens()) {
    if (added.content == token) return added.id;
  }
  return model_.Find(token);
}

absl::Status BpeTokenizer::SetSpecialTokens(const SpecialTokenSettings& settings) {
  const auto outside = [&](TokenId id) { return id < 0 || id >= vocab_size(); };
  bos_id_ = settings.bos_id.value_or(settings.bos_token.empty() ? -1 : Find(settings.bos_token));
  if (bos_id_ < 0 && !post_processor_.before.empty()) bos_id_ = post_processor_.before[0];
  eos_ids_ = settings.eos_ids;
  const TokenId eos = settings.eos_token.empty() ? -1 : Find(settings.eos_token);
  if (eos >= 0 && std::find(eos_ids_.begin(), eos_ids_.end(), eos) == eos_ids_.end()) {
    eos_ids_.insert(std::upper_bound(eos_ids_.begin(), eos_ids_.end(), eos), eos);
  }
  if (bos_id_ >= 0 && post_processor_.before.empty() && settings.add_bos.value_or(false)) {
    post_processor_.before = {bos_id_};
  }
  if (!eos_ids_.empty() && post_processor_.after.empty() && settings.add_eos.value_or(false)) {
    post_processor_.after = {eos >= 0 ? eos : eos_ids_[0]};
  }
  std::vector<TokenId> used = eos_ids_;
  if (bos_id_ >= 0) used.push_back(bos_id_);
  used.insert(used.end(), post_processor_.before.begin(), post_processor_.before.end());
  used.insert(used.end(), post_processor_.after.begin(), post_processor_.after.end());
  const auto bad = std::find_if(used.begin(), used.end(), outside);
  if (bad == used.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("special token id ", *bad,
                                                 " (post_processor or config.json) is outside the ",
                                                 vocab_size(), " tokens"));
}

std::vector<size_t> BpeTokenizer::FindSpecial(absl::string_view text) const {
  std::vector<size_t> found = special_texts_.Find(text);
  if (!added_.normalizes_control() ||
      special_texts_.Find(normalizer_.Apply(text)).size() <= found.size())
    return found;
  // Normalization makes a special token of other characters.
  found.clear();
  for (size_t at = 0; at < text.size(); at += NextUtf8Char(text.substr(at)).length)
    found.push_back(at);
  return found;
}

// Where the literal bytes of a text are after its normalization. Normalizes it once more, with a
// sign before and behind each literal character.
std::vector<size_t> BpeTokenizer::NormalizedOffsets(absl::string_view text,
                                                    absl::Span<const size_t> literal,
                                                    absl::string_view normalized) const {
  constexpr absl::string_view kSign = "\xEF\xB7\x90";  // U+FDD0, which no text needs
  std::string signed_text;
  size_t done = 0;
  for (const size_t at : literal) {
    const size_t end = at + NextUtf8Char(text.substr(at)).length;
    absl::StrAppend(&signed_text, text.substr(done, at - done), kSign, text.substr(at, end - at),
                    kSign);
    done = end;
  }
  absl::StrAppend(&signed_text, text.substr(done));
  const std::string after = normalizer_.Apply(signed_text);
  std::vector<size_t> offsets;
  std::string plain;
  bool inside = false;
  for (const absl::string_view piece : absl::StrSplit(after, kSign)) {
    if (inside) offsets.push_back(plain.size());
    inside = !inside;
    absl::StrAppend(&plain, piece);
  }
  if (plain == normalized && offsets.size() == literal.size()) return offsets;
  // The signs have changed what is normalized: all bytes are literal.
  offsets.resize(normalized.size());
  std::iota(offsets.begin(), offsets.end(), 0);
  return offsets;
}

void BpeTokenizer::EncodePart(absl::string_view text, absl::Span<const size_t> literal,
                              bool at_text_start, std::vector<TokenId>* ids) const {
  const std::string normalized = normalizer_.Apply(text);
  std::vector<size_t> offsets;
  if (!literal.empty() && added_.normalizes_control())
    offsets = NormalizedOffsets(text, literal, normalized);
  for (const AddedTokens::Part& part : added_.SplitNormalized(normalized, offsets)) {
    if (part.id >= 0) {
      ids->push_back(part.id);
    } else {
      for (const std::string& word : pre_tokenizer_.Split(part.text, at_text_start)) {
        model_.Encode(word, ids);
      }
    }
    at_text_start = false;
  }
}

std::vector<TokenId> BpeTokenizer::EncodeChat(absl::string_view text,
                                              absl::Span<const size_t> literal,
                                              bool add_special_tokens) const {
  std::vector<TokenId> ids;
  if (add_special_tokens) ids = post_processor_.before;
  const std::string valid = ValidUtf8(text);
  bool at_text_start = true;
  for (const AddedTokens::Part& part : added_.SplitRaw(valid, literal)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      const size_t begin = part.text.data() - valid.data();
      std::vector<size_t> inside;  // the literal bytes of the part
      for (auto it = std::lower_bound(literal.begin(), literal.end(), begin);
           it != literal.end() && *it < begin + part.text.size(); ++it)
        inside.push_back(*it - begin);
      EncodePart(part.text, inside, at_text_start, &ids);
    }
    at_text_start = false;
  }
  if (add_special_tokens) {
    ids.insert(ids.end(), post_processor_.after.begin(), post_processor_.after.end());
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(TokenizerFile file,
                                                            const std::string& path,
                                                            const SpecialTokenSettings& settings) {
  try {  // the JSON library throws if a field is missing or has the wrong type
    auto tokenizer = BpeTokenizer::FromFile(std::move(file), settings);
    if (tokenizer.ok()) return tokenizer;
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", tokenizer.status().message()));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a tokenizer.json: ", error.what()));
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpeTokenizer(const std::string& path,
                                                            const SpecialTokenSettings& settings) {
  COPPICE_ASSIGN_OR_RETURN(const std::string text,
                           model_files::ReadModelText(path, kMostTableBytes));
  absl::StatusOr<TokenizerFile> file = ParseTokenizerJson(text);
  if (!file.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", file.status().message()));
  return MakeBpeTokenizer(*std::move(file), path, settings);
}

}  // namespace coppice::tokenizer
