#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/token_bound.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

class BpeTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(const Json& json,
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
  size_t FewestTokens(absl::string_view text) const override { return bound_.Fewest(text); }
  std::vector<size_t> FindSpecial(absl::string_view text) const override {
    return added_.FindSpecial(text);
  }
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    if (id < 0 || id >= vocab_size() || (skip_special && special_[id])) return "";
    return bytes_[id];
  }
  int LeadingSpacesDropped() const override { return leading_spaces_dropped_; }

 private:
  absl::Status ReadComponents(const Json& json);
  TokenBound MakeBound() const;
  absl::Status FillBytes(const TokenDecoder& decoder);
  absl::Status SetSpecialTokens(const SpecialTokenSettings& settings);
  TokenId Find(absl::string_view token) const;
  void EncodeNormalized(absl::string_view text, bool at_text_start, bool with_special,
                        std::vector<TokenId>* ids) const;

  BpeModel model_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokens added_;
  PostProcessor post_processor_;
  std::vector<std::string> bytes_;  // [vocab_size] the bytes of each token
  std::vector<bool> special_;       // [vocab_size]
  TokenId bos_id_ = -1;
  std::vector<TokenId> eos_ids_;
  int leading_spaces_dropped_ = 0;
  TokenBound bound_;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::FromJson(
    const Json& json, const SpecialTokenSettings& settings) {
  auto tokenizer = std::make_unique<BpeTokenizer>();
  COPPICE_RETURN_IF_ERROR(tokenizer->ReadComponents(json));
  COPPICE_RETURN_IF_ERROR(tokenizer->SetSpecialTokens(settings));
  return tokenizer;
}

absl::Status BpeTokenizer::ReadComponents(const Json& json) {
  const auto component = [&](const char* key) { return json.value(key, Json()); };
  COPPICE_ASSIGN_OR_RETURN(model_, BpeModel::FromJson(json.at("model")));
  COPPICE_ASSIGN_OR_RETURN(normalizer_, Normalizer::FromJson(component("normalizer")));
  COPPICE_ASSIGN_OR_RETURN(pre_tokenizer_, PreTokenizer::FromJson(component("pre_tokenizer")));
  COPPICE_ASSIGN_OR_RETURN(added_, AddedTokens::FromJson(component("added_tokens"), normalizer_));
  COPPICE_ASSIGN_OR_RETURN(post_processor_, PostProcessor::FromJson(component("post_processor")));
  COPPICE_ASSIGN_OR_RETURN(const TokenDecoder decoder,
                           TokenDecoder::FromJson(component("decoder")));
  leading_spaces_dropped_ = decoder.leading_spaces_dropped();
  bound_ = MakeBound();
  return FillBytes(decoder);
}

TokenBound BpeTokenizer::MakeBound() const {
  const bool byte_level = pre_tokenizer_.byte_level();
  size_t longest = model_.LongestToken(byte_level);
  bool strips = false;  // an added token takes any amount of white space
  for (const AddedToken& token : added_.tokens()) {
    strips = strips || token.strip_left || token.strip_right;
    longest = std::max(longest, token.text.size());
  }
  TokenBound bound;
  if (model_.HasEveryByte(byte_level) && pre_tokenizer_.keeps_all() && !strips)
    bound.of_all = longest * normalizer_.MostShrinking();
  bound.of_kept = longest;
  for (int c = 0; c < 128; ++c) {
    bound.kept[c] = model_.HasCharacter(static_cast<char>(c), byte_level) &&
                    normalizer_.Keeps(static_cast<char>(c)) &&
                    pre_tokenizer_.Keeps(static_cast<char>(c)) &&
                    !(strips && absl::ascii_isspace(c));
  }
  return bound;
}

absl::Status BpeTokenizer::FillBytes(const TokenDecoder& decoder) {
  for (const std::string& token : model_.tokens()) bytes_.push_back(decoder.Bytes(token));
  special_.assign(bytes_.size(), false);
  for (const AddedToken& token : added_.tokens()) {
    const TokenId in_model = model_.Find(token.content);
    const bool taken = static_cast<size_t>(token.id) < model_.tokens().size() &&
                       !model_.tokens()[token.id].empty() && in_model != token.id;
    if (token.id >= BpeModel::kMaxVocab || taken || (in_model >= 0 && in_model != token.id)) {
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

void BpeTokenizer::EncodeNormalized(absl::string_view text, bool at_text_start, bool with_special,
                                    std::vector<TokenId>* ids) const {
  for (const AddedTokens::Part& part : added_.SplitNormalized(text, with_special)) {
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
      // Normalization moves the offsets. A part with any literal token has no special ones at all.
      const size_t begin = part.text.data() - valid.data();
      const auto first = std::lower_bound(literal.begin(), literal.end(), begin);
      const bool with_special = first == literal.end() || *first >= begin + part.text.size();
      EncodeNormalized(normalizer_.Apply(part.text), at_text_start, with_special, &ids);
    }
    at_text_start = false;
  }
  if (add_special_tokens) {
    ids.insert(ids.end(), post_processor_.after.begin(), post_processor_.after.end());
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpeTokenizer(const std::string& path,
                                                            const SpecialTokenSettings& settings) {
  COPPICE_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMostTableBytes));
  try {  // the JSON library throws if a field is missing or has the wrong type
    const Json json = Json::parse(text);
    auto tokenizer = BpeTokenizer::FromJson(json, settings);
    if (tokenizer.ok()) return tokenizer;
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", tokenizer.status().message()));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a tokenizer.json: ", error.what()));
  }
}

}  // namespace coppice::tokenizer
