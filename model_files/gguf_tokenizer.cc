#include "model_files/gguf_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model_files/sentencepiece_writer.h"
#include "model_files/split_patterns.h"
#include "nlohmann/json.hpp"

namespace coppice::model_files {
namespace {

using Json = nlohmann::json;

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTypesKey[] = "tokenizer.ggml.token_type";
// tokenizer.ggml.token_type; SentencePiece numbers its pieces alike.
constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;
// Texts of tokens that end a turn. One counts if it is a control token and the chat template writes
// it.
constexpr absl::string_view kTurnEnds[] = {"<|im_end|>",    "<|eot_id|>",      "<|end|>",
                                           "<end_of_turn>", "<|end_of_turn|>", "<|endoftext|>"};

// The id of a special token that the file names, if it does.
absl::StatusOr<std::optional<int64_t>> SpecialId(const GgufFile& file, const std::string& name) {
  constexpr int64_t kNone = 0xffffffff;
  const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
  COPPICE_ASSIGN_OR_RETURN(const int64_t id, file.IntOr(key, -1, kNone, -1));
  if (id == -1 || id == kNone) return std::nullopt;
  COPPICE_ASSIGN_OR_RETURN(const auto tokens, file.Texts(kTokensKey));
  const auto count = static_cast<int64_t>(tokens.size());
  if (id < count) return id;
  return file.KeyError(key, absl::StrCat(id, ", expected less than ", count, ", the tokens"));
}

// The vocabulary of a file, checked.
class Tokens {
 public:
  static absl::StatusOr<Tokens> Read(const GgufFile& file) {
    Tokens tokens(file);
    COPPICE_ASSIGN_OR_RETURN(const std::string name, GgufTokenizerName(file));
    tokens.byte_level_ = name == "tokenizer.json";
    COPPICE_ASSIGN_OR_RETURN(tokens.texts_, file.Texts(kTokensKey));
    COPPICE_ASSIGN_OR_RETURN(tokens.types_, file.Ints(kTypesKey));
    COPPICE_RETURN_IF_ERROR(tokens.Check());
    COPPICE_RETURN_IF_ERROR(tokens.ReadSettings());
    return tokens;
  }

  bool byte_level() const { return byte_level_; }
  absl::StatusOr<std::string> TokenizerJson() const;
  absl::StatusOr<std::string> SentencePieceModel() const;
  Json Config() const;
  absl::StatusOr<Json> GenerationConfig() const;

 private:
  explicit Tokens(const GgufFile& file) : file_(&file) {}

  absl::Status Check() {
    if (texts_.empty()) return file_->KeyError(kTokensKey, "expected at least one token");
    COPPICE_RETURN_IF_ERROR(CheckCount(kTypesKey, types_.size()));
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i].empty())
        return file_->KeyError(absl::StrCat(kTokensKey, "[", i, "]"), "expected a text of a token");
      const auto [first, is_new] = ids_.try_emplace(texts_[i], i);
      if (!is_new) {
        return file_->KeyError(
            absl::StrCat(kTokensKey, "[", i, "]"),
            absl::StrCat(ShownName(texts_[i]), ", which is token ", first->second, " already"));
      }
      if (types_[i] < kNormal || types_[i] > kByte) {
        return file_->KeyError(absl::StrCat(kTypesKey, "[", i, "]"),
                               absl::StrCat(types_[i], ", expected 1 to 6"));
      }
    }
    return absl::OkStatus();
  }

  // A file may name it by its key alone, and call it a control token.
  absl::Status FindUnknown() {
    if (byte_level_) return absl::OkStatus();
    const auto count = [&] { return std::count(types_.begin(), types_.end(), kUnknown); };
    if (count() == 0 && unknown_.has_value()) types_[*unknown_] = kUnknown;
    if (count() == 1) return absl::OkStatus();
    return file_->KeyError(kTypesKey, absl::StrCat(count(), " unknown tokens, expected one"));
  }

  absl::Status CheckCount(const char* key, size_t count) const {
    if (count == texts_.size()) return absl::OkStatus();
    return file_->KeyError(
        key, absl::StrCat(count, " values, expected ", texts_.size(), ", one for each token"));
  }

  absl::Status ReadSettings() {
    if (byte_level_) {
      COPPICE_ASSIGN_OR_RETURN(const std::string pre,
                               file_->TextOr("tokenizer.ggml.pre", "default"));
      split_ = FindSplitPattern(pre);
      if (split_ == nullptr) {
        return file_->KeyError(
            "tokenizer.ggml.pre",
            absl::StrCat(ShownName(pre), " is not served (", SplitPatternNames(), " are)"));
      }
    }
    COPPICE_ASSIGN_OR_RETURN(template_, file_->TextOr("tokenizer.chat_template", ""));
    COPPICE_ASSIGN_OR_RETURN(bos_, SpecialId(*file_, "bos"));
    COPPICE_ASSIGN_OR_RETURN(eos_, SpecialId(*file_, "eos"));
    COPPICE_ASSIGN_OR_RETURN(unknown_, SpecialId(*file_, "unknown"));
    COPPICE_ASSIGN_OR_RETURN(padding_, SpecialId(*file_, "padding"));
    // Without the flags the programs that read GGUF begin a text with BOS if the vocabulary is of
    // SentencePiece or Llama 3.
    COPPICE_ASSIGN_OR_RETURN(add_bos_, file_->BoolOr("tokenizer.ggml.add_bos_token",
                                                     !byte_level_ || split_->begins_with_bos));
    COPPICE_ASSIGN_OR_RETURN(add_eos_, file_->BoolOr("tokenizer.ggml.add_eos_token", false));
    COPPICE_ASSIGN_OR_RETURN(space_first_,
                             file_->BoolOr("tokenizer.ggml.add_space_prefix", !byte_level_));
    add_bos_ = add_bos_ && bos_.has_value();
    add_eos_ = add_eos_ && eos_.has_value();
    return FindUnknown();
  }

  std::string Text(int64_t id) const { return std::string(texts_[id]); }
  absl::StatusOr<Json> Merges() const;
  Json AddedTokens() const;
  Json PostProcessor() const;

  const GgufFile* file_;
  bool byte_level_ = false;
  std::vector<absl::string_view> texts_;  // views into the file
  std::vector<int32_t> types_;
  absl::flat_hash_map<absl::string_view, size_t> ids_;
  const SplitPattern* split_ = nullptr;  // of a byte-level vocabulary
  std::string template_;
  std::optional<int64_t> bos_, eos_, unknown_, padding_;
  bool add_bos_ = false, add_eos_ = false, space_first_ = false;
};

// "left right", as in the file: the space of a token is written as another character.
absl::StatusOr<Json> Tokens::Merges() const {
  const std::string key = "tokenizer.ggml.merges";
  COPPICE_ASSIGN_OR_RETURN(const auto merges, file_->Texts(key));
  Json json = Json::array();
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t space = merges[i].find(' ');
    const absl::string_view left = merges[i].substr(0, space);
    const absl::string_view right =
        space == absl::string_view::npos ? "" : merges[i].substr(space + 1);
    if (!ids_.contains(left) || !ids_.contains(right) ||
        !ids_.contains(absl::StrCat(left, right))) {
      return file_->KeyError(
          absl::StrCat(key, "[", i, "]"),
          absl::StrCat("'", ShownName(merges[i]), "', expected two tokens that form a third"));
    }
    json.push_back(merges[i]);
  }
  return json;
}

Json Tokens::AddedTokens() const {
  Json added = Json::array();
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (types_[i] != kControl && types_[i] != kUserDefined) continue;
    added.push_back({{"id", i},
                     {"content", texts_[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", types_[i] == kControl}});
  }
  return added;
}

// BOS and EOS around each text, as far as the file asks for them.
Json Tokens::PostProcessor() const {
  if (!add_bos_ && !add_eos_) return Json();
  Json single = Json::array(), tokens = Json::object();
  const auto add = [&](int64_t id) {
    single.push_back({{"SpecialToken", {{"id", Text(id)}, {"type_id", 0}}}});
    tokens[Text(id)] = {
        {"id", Text(id)}, {"ids", Json::array({id})}, {"tokens", Json::array({Text(id)})}};
  };
  if (add_bos_) add(*bos_);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (add_eos_) add(*eos_);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", single},
          {"special_tokens", tokens}};
}

absl::StatusOr<std::string> Tokens::TokenizerJson() const {
  COPPICE_ASSIGN_OR_RETURN(Json merges, Merges());
  Json vocabulary = Json::object();
  for (size_t i = 0; i < texts_.size(); ++i) vocabulary[std::string(texts_[i])] = i;
  const Json json = {
      {"version", "1.0"},
      {"added_tokens", AddedTokens()},
      {"normalizer", split_->composes ? Json{{"type", "NFC"}} : Json()},
      {"pre_tokenizer", PreTokenizerJson(*split_, space_first_)},
      {"post_processor", PostProcessor()},
      {"decoder",
       {{"type", "ByteLevel"},
        {"add_prefix_space", true},
        {"trim_offsets", true},
        {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", split_->ignores_merges},
        {"vocab", std::move(vocabulary)},
        {"merges", std::move(merges)}}},
  };
  return json.dump();
}

absl::StatusOr<std::string> Tokens::SentencePieceModel() const {
  const std::string key = "tokenizer.ggml.scores";
  COPPICE_ASSIGN_OR_RETURN(const std::vector<float> scores, file_->Floats(key));
  COPPICE_RETURN_IF_ERROR(CheckCount(key.c_str(), scores.size()));
  SentencePieceSettings settings;
  settings.byte_fallback = std::find(types_.begin(), types_.end(), kByte) != types_.end();
  settings.unknown = std::find(types_.begin(), types_.end(), kUnknown) - types_.begin();
  settings.bos = bos_.value_or(-1);
  settings.eos = eos_.value_or(-1);
  settings.space_first = space_first_;
  COPPICE_ASSIGN_OR_RETURN(settings.joins_spaces,
                           file_->BoolOr("tokenizer.ggml.remove_extra_whitespaces", false));
  SentencePieceWriter writer;
  for (size_t i = 0; i < texts_.size(); ++i) writer.AddPiece(texts_[i], scores[i], types_[i]);
  return std::move(writer).Finish(settings);
}

Json Tokens::Config() const {
  Json config = {
      {"tokenizer_class", byte_level_ ? "PreTrainedTokenizerFast" : "LlamaTokenizer"},
      {"add_bos_token", add_bos_},
      {"add_eos_token", add_eos_},
      {"clean_up_tokenization_spaces", false},
  };
  if (bos_) config["bos_token"] = Text(*bos_);
  if (eos_) config["eos_token"] = Text(*eos_);
  if (unknown_) config["unk_token"] = Text(*unknown_);
  if (padding_) config["pad_token"] = Text(*padding_);
  if (!template_.empty()) config["chat_template"] = template_;
  return config;
}

absl::StatusOr<Json> Tokens::GenerationConfig() const {
  std::vector<int64_t> ends;
  for (const char* name : {"eos", "eot", "eom"}) {
    COPPICE_ASSIGN_OR_RETURN(const auto id, SpecialId(*file_, name));
    if (id) ends.push_back(*id);
  }
  for (const absl::string_view text : kTurnEnds) {
    const auto found = ids_.find(text);
    if (found != ids_.end() && types_[found->second] == kControl &&
        absl::StrContains(template_, text))
      ends.push_back(static_cast<int64_t>(found->second));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  Json config = Json::object();
  if (bos_) config["bos_token_id"] = *bos_;
  if (!ends.empty()) config["eos_token_id"] = ends;
  if (padding_) config["pad_token_id"] = *padding_;
  return config;
}

}  // namespace

absl::StatusOr<std::string> GgufTokenizerName(const GgufFile& file) {
  const std::string key = "tokenizer.ggml.model";
  COPPICE_ASSIGN_OR_RETURN(const std::string kind, file.Text(key));
  if (kind == "gpt2") return "tokenizer.json";
  if (kind == "llama") return "tokenizer.model";
  return file.KeyError(key, absl::StrCat(ShownName(kind), " is not served (gpt2 and llama are)"));
}

absl::StatusOr<std::string> GgufTokenizer(const GgufFile& file) {
  COPPICE_ASSIGN_OR_RETURN(const Tokens tokens, Tokens::Read(file));
  return tokens.byte_level() ? tokens.TokenizerJson() : tokens.SentencePieceModel();
}

absl::StatusOr<Json> GgufTokenizerConfig(const GgufFile& file) {
  COPPICE_ASSIGN_OR_RETURN(const Tokens tokens, Tokens::Read(file));
  return tokens.Config();
}

absl::StatusOr<Json> GgufGenerationConfig(const GgufFile& file) {
  COPPICE_ASSIGN_OR_RETURN(const Tokens tokens, Tokens::Read(file));
  return tokens.GenerationConfig();
}

absl::Status AddSpecialIds(const GgufFile& file, Json* config) {
  for (const char* name : {"bos", "eos"}) {
    COPPICE_ASSIGN_OR_RETURN(const auto id, SpecialId(file, name));
    if (id) (*config)[absl::StrCat(name, "_token_id")] = *id;
  }
  return absl::OkStatus();
}

}  // namespace coppice::model_files
