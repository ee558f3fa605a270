#include "tokenizer/vocab_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "tokenizer/bpe_tables.h"
#include "tokenizer/bpe_tokenizer.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

// How a class of Hugging Face Transformers cuts a text into words.
struct TokenizerClass {
  const char* name;
  bool nfc;             // normalizes first
  const char* pattern;  // nullptr: that of GPT-2
  // Tokens that a folder need not name.
  const char *bos, *eos, *pad;
};
constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kEnd[] = "<|endoftext|>";
constexpr TokenizerClass kClasses[] = {
    {"GPT2Tokenizer", false, nullptr, kEnd, kEnd, nullptr},
    {"CodeGenTokenizer", false, nullptr, kEnd, kEnd, nullptr},
    {"GPTNeoXTokenizer", true, nullptr, kEnd, kEnd, "<|padding|>"},
    {"Qwen2Tokenizer", true, kQwen2Pattern, nullptr, kEnd, kEnd},
};
// For a folder that names no class: by model_type of config.json.
constexpr std::pair<const char*, const char*> kClassOfModel[] = {
    {"codegen", "CodeGenTokenizer"}, {"gpt2", "GPT2Tokenizer"},
    {"gpt_neo", "GPT2Tokenizer"},    {"gpt_neox", "GPTNeoXTokenizer"},
    {"gptj", "GPT2Tokenizer"},       {"opt", "GPT2Tokenizer"},
    {"phi", "GPT2Tokenizer"},        {"qwen2", "Qwen2Tokenizer"},
    {"qwen2_moe", "Qwen2Tokenizer"}, {"qwen3", "Qwen2Tokenizer"},
    {"qwen3_moe", "Qwen2Tokenizer"}, {"starcoder2", "GPT2Tokenizer"},
};
// The names of special tokens, in the order in which those without an id get one.
constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
constexpr const char* kMoreTokens[] = {"additional_special_tokens", "extra_special_tokens"};

absl::Status Refusal(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
}

// The content of a token, which is a string or an object; "" = none.
std::string Content(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  const Json content = token.is_object() ? token.value("content", Json()) : Json();
  return content.is_string() ? content.get<std::string>() : "";
}

class VocabFolder {
 public:
  explicit VocabFolder(std::string dir) : dir_(std::move(dir)) {}
  // Also sets the begin and the end of a text in `settings`, and that nothing more is added.
  absl::StatusOr<TokenizerFile> Read(SpecialTokenSettings* settings);
  std::string Path(const char* name) const { return absl::StrCat(dir_, "/", name); }

 private:
  absl::Status ReadVocab();
  absl::Status ReadMerges();
  absl::Status ReadConfigs();
  absl::Status FindClass();
  absl::Status ReadAddedTokens();
  absl::Status AddToken(const std::string& path, TokenId id, Json token);
  absl::Status AddSpecialTokens();
  absl::Status AddSpecial(const Json& token);
  // A special token that the folder names, or else its class, if the vocabulary has that.
  Json Named(const std::string& name) const;
  TokenId Find(const std::string& content) const;  // -1 = none
  Json PreTokenizerJson() const;
  Json PostProcessorJson(const SpecialTokenSettings& settings) const;

  std::string dir_;
  BpeTables tables_;
  absl::flat_hash_map<std::string, TokenId> vocab_;
  Json config_, tokenizer_config_;  // the latter with what special_tokens_map.json says
  bool lists_added_ = false;        // tokenizer_config.json has all added tokens
  const TokenizerClass* class_ = nullptr;
  std::vector<bool> taken_;  // [greatest id + 1] an id of a token
  Json added_ = Json::array();
  absl::flat_hash_map<std::string, size_t> added_index_;  // by content
};

absl::Status VocabFolder::ReadVocab() {
  const std::string path = Path("vocab.json");
  if (!FileExists(path)) return Refusal(dir_, "merges.txt, but no vocab.json");
  COPPICE_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMostTableBytes));
  absl::StatusOr<BpeTables> tables = ParseVocabJson(text);
  if (!tables.ok()) return Refusal(path, tables.status().message());
  tables_ = *std::move(tables);
  for (const auto& [token, id] : tables_.vocab) {
    const auto index = static_cast<size_t>(id);
    if (index >= taken_.size()) taken_.resize(index + 1, false);
    taken_[index] = true;
    vocab_.emplace(token, id);
  }
  return absl::OkStatus();
}

// A line is a merge, "left right". The first may be a comment with the version.
absl::Status VocabFolder::ReadMerges() {
  const std::string path = Path("merges.txt");
  if (!FileExists(path)) return Refusal(dir_, "vocab.json, but no merges.txt");
  COPPICE_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMostTableBytes));
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    ++number;
    line = absl::StripSuffix(line, "\r");
    if (absl::StartsWith(line, "#version") || text.empty()) continue;
    const auto refuse = [&](absl::string_view why) {
      return Refusal(absl::StrCat(path, ":", number), why);
    };
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
      return refuse(absl::StrCat("expected two tokens with a space between them, got \"",
                                 line.substr(0, 40), "\""));
    }
    for (const std::string& token : {parts[0], parts[1], parts[0] + parts[1]}) {
      if (!vocab_.contains(token))
        return refuse(absl::StrCat("token ", token, " is not in vocab.json"));
    }
    tables_.merges.emplace_back(parts[0], parts[1]);
  }
  return absl::OkStatus();
}

absl::Status VocabFolder::ReadConfigs() {
  COPPICE_ASSIGN_OR_RETURN(config_, ReadOptionalObject(dir_, "config.json"));
  COPPICE_ASSIGN_OR_RETURN(tokenizer_config_, ReadOptionalObject(dir_, "tokenizer_config.json"));
  lists_added_ = tokenizer_config_.contains("added_tokens_decoder");
  if (lists_added_) return absl::OkStatus();  // the older file does not count then
  COPPICE_ASSIGN_OR_RETURN(const Json map, ReadOptionalObject(dir_, "special_tokens_map.json"));
  tokenizer_config_.update(map);
  return absl::OkStatus();
}

absl::Status VocabFolder::FindClass() {
  const std::string path = Path("tokenizer_config.json");
  std::string wanted;
  if (tokenizer_config_.contains("tokenizer_class")) {
    if (!tokenizer_config_["tokenizer_class"].is_string())
      return Refusal(path, "tokenizer_class: expected a name");
    wanted = tokenizer_config_["tokenizer_class"].get<std::string>();
  }
  const std::string model = config_.value("model_type", Json()).is_string()
                                ? config_["model_type"].get<std::string>()
                                : "";
  for (const auto& [type, name] : kClassOfModel) {
    if (wanted.empty() && model == type) wanted = name;
  }
  std::vector<std::string> names;
  for (const TokenizerClass& known : kClasses) {
    if (absl::StripSuffix(wanted, "Fast") == known.name) class_ = &known;
    names.emplace_back(known.name);
  }
  if (class_ != nullptr) return absl::OkStatus();
  const std::string expected = absl::StrCat("expected ", absl::StrJoin(names, ", "));
  if (!wanted.empty()) {
    return Refusal(path, absl::StrCat("tokenizer_class ", wanted,
                                      " with vocab.json is not supported, ", expected));
  }
  return Refusal(path, absl::StrCat("no tokenizer_class, and model_type \"", model,
                                    "\" of config.json does not say which; ", expected));
}

TokenId VocabFolder::Find(const std::string& content) const {
  const auto added = added_index_.find(content);
  if (added != added_index_.end()) return added_[added->second]["id"].get<TokenId>();
  const auto it = vocab_.find(content);
  return it == vocab_.end() ? -1 : it->second;
}

Json VocabFolder::Named(const std::string& name) const {
  if (tokenizer_config_.contains(name)) return tokenizer_config_[name];
  const char* usual = name == "bos_token"                          ? class_->bos
                      : name == "eos_token" || name == "unk_token" ? class_->eos
                      : name == "pad_token"                        ? class_->pad
                                                                   : nullptr;
  return usual != nullptr && Find(usual) >= 0 ? Json(usual) : Json();
}

absl::Status VocabFolder::AddToken(const std::string& path, TokenId id, Json token) {
  const std::string content = Content(token);
  const auto index = static_cast<size_t>(id);
  const auto in_vocab = vocab_.find(content);
  if (content.empty() || id < 0 || id >= BpeTables::kMaxVocab) {
    return Refusal(path,
                   absl::StrCat("added token ", id, ": expected a content and an id from 0 to ",
                                BpeTables::kMaxVocab - 1));
  }
  const bool same = in_vocab != vocab_.end() && in_vocab->second == id;
  if (!same && (in_vocab != vocab_.end() || (index < taken_.size() && taken_[index]))) {
    return Refusal(path, absl::StrCat("added token ", content, ": id ", id,
                                      " does not agree with vocab.json"));
  }
  if (!added_index_.emplace(content, added_.size()).second)
    return Refusal(path, absl::StrCat("added token ", content, " appears twice"));
  if (index >= taken_.size()) taken_.resize(index + 1, false);
  taken_[index] = true;
  token["id"] = id;
  added_.push_back(std::move(token));
  return absl::OkStatus();
}

absl::Status VocabFolder::ReadAddedTokens() {
  if (lists_added_) {
    const std::string path = Path("tokenizer_config.json");
    for (const auto& [key, token] : tokenizer_config_["added_tokens_decoder"].items()) {
      TokenId id = -1;
      if (!absl::SimpleAtoi(key, &id) || !token.is_object())
        return Refusal(path, absl::StrCat("added_tokens_decoder: ", key, ": expected id: {...}"));
      COPPICE_RETURN_IF_ERROR(AddToken(path, id, token));
    }
    return absl::OkStatus();
  }
  COPPICE_ASSIGN_OR_RETURN(const Json ids, ReadOptionalObject(dir_, "added_tokens.json"));
  for (const auto& [content, value] : ids.items()) {
    const TokenId id = value.is_number_integer() && value >= 0 && value < BpeTables::kMaxVocab
                           ? value.get<TokenId>()
                           : -1;
    COPPICE_RETURN_IF_ERROR(AddToken(Path("added_tokens.json"), id, {{"content", content}}));
  }
  return absl::OkStatus();
}

absl::Status VocabFolder::AddSpecial(const Json& token) {
  const std::string content = Content(token);
  if (content.empty()) return absl::OkStatus();
  const auto known = added_index_.find(content);
  if (known != added_index_.end()) {
    added_[known->second]["special"] = true;
    return absl::OkStatus();
  }
  Json made = token.is_object() ? token : Json{{"content", content}};
  made["special"] = true;
  const TokenId id = Find(content);
  return AddToken(Path("tokenizer_config.json"), id >= 0 ? id : static_cast<TokenId>(taken_.size()),
                  std::move(made));
}

absl::Status VocabFolder::AddSpecialTokens() {
  for (const char* name : kNamedTokens) COPPICE_RETURN_IF_ERROR(AddSpecial(Named(name)));
  for (const char* name : kMoreTokens) {
    for (const Json& token : tokenizer_config_.value(name, Json::array()))
      COPPICE_RETURN_IF_ERROR(AddSpecial(token));
  }
  return absl::OkStatus();
}

Json VocabFolder::PreTokenizerJson() const {
  const Json prefix = tokenizer_config_.value("add_prefix_space", Json());
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", prefix.is_boolean() && prefix.get<bool>()},
                      {"use_regex", class_->pattern == nullptr}};
  if (class_->pattern == nullptr) return bytes;
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", class_->pattern}}}, {"behavior", "Isolated"}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

// The begin and the end of a text, if the folder wants them added.
Json VocabFolder::PostProcessorJson(const SpecialTokenSettings& settings) const {
  Json single = Json::array({{{"Sequence", {{"id", "A"}}}}});
  Json tokens = Json::object();
  const auto add = [&](const std::string& token, bool wanted, bool in_front) {
    if (!wanted || token.empty()) return;
    single.insert(in_front ? single.begin() : single.end(),
                  Json{{"SpecialToken", {{"id", token}}}});
    tokens[token] = {{"ids", {Find(token)}}};
  };
  add(settings.bos_token, settings.add_bos.value_or(false), /*in_front=*/true);
  add(settings.eos_token, settings.add_eos.value_or(false), /*in_front=*/false);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
}

absl::StatusOr<TokenizerFile> VocabFolder::Read(SpecialTokenSettings* settings) {
  COPPICE_RETURN_IF_ERROR(ReadConfigs());
  COPPICE_RETURN_IF_ERROR(ReadVocab());
  COPPICE_RETURN_IF_ERROR(ReadMerges());
  COPPICE_RETURN_IF_ERROR(FindClass());
  COPPICE_RETURN_IF_ERROR(ReadAddedTokens());
  COPPICE_RETURN_IF_ERROR(AddSpecialTokens());
  settings->bos_token = Content(Named("bos_token"));
  settings->eos_token = Content(Named("eos_token"));
  Json json;
  json["normalizer"] = class_->nfc ? Json{{"type", "NFC"}} : Json();
  json["pre_tokenizer"] = PreTokenizerJson();
  json["decoder"] = {{"type", "ByteLevel"}};
  json["post_processor"] = PostProcessorJson(*settings);
  settings->add_bos = settings->add_eos = false;  // it does
  json["added_tokens"] = std::move(added_);
  json["model"] = {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}};
  return TokenizerFile{std::move(json), std::move(tables_)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadVocabFolder(const std::string& dir,
                                                           SpecialTokenSettings settings) {
  VocabFolder folder(dir);
  try {  // the JSON library throws if a value has the wrong type
    COPPICE_ASSIGN_OR_RETURN(TokenizerFile file, folder.Read(&settings));
    return MakeBpeTokenizer(std::move(file), folder.Path("vocab.json"), settings);
  } catch (const Json::exception& error) {
    return Refusal(folder.Path("tokenizer_config.json"), error.what());
  }
}

}  // namespace coppice::tokenizer
