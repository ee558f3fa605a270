#include "tokenizer/bpe_tables.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

// Receives the events of the JSON library: those of the tables fill them, the others make the tree.
class TableReader : public nlohmann::json_sax<Json> {
 public:
  explicit TableReader(bool only_vocab) : only_vocab_(only_vocab) {}
  TokenizerFile TakeFile() { return std::move(file_); }
  const std::string& error() const { return error_; }

  bool null() override { return Add(Json()); }
  bool boolean(bool value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool number_integer(int64_t value) override {
    return part_ == kVocab ? AddId(value) : Add(value);
  }
  bool number_unsigned(uint64_t value) override {
    if (part_ != kVocab) return Add(value);
    return AddId(value > INT64_MAX ? -1 : static_cast<int64_t>(value));
  }
  bool string(std::string& value) override {
    if (part_ == kMerges) return AddMerge(value);
    if (part_ != kPair) return Add(std::move(value));
    if (halves_ == 2) return FailMerge();
    (halves_ == 0 ? merge_.first : merge_.second) = std::move(value);
    ++halves_;
    return true;
  }
  bool key(std::string& value) override {
    key_ = std::move(value);
    return true;
  }
  bool start_object(size_t) override {
    const bool root = tree_.empty(), in_model = tree_.size() == 2 && path_ == "model";
    if (part_ == kTree && root && only_vocab_) return Enter(kVocab);
    if (part_ == kTree && in_model && key_ == "vocab") return Add(Json::object()) && Enter(kVocab);
    return Open(Json::object());
  }
  bool end_object() override {
    if (part_ != kVocab) return Close();
    part_ = kTree;
    return true;
  }
  bool start_array(size_t) override {
    if (part_ == kMerges) {
      halves_ = 0;
      return Enter(kPair);
    }
    const bool in_model = tree_.size() == 2 && path_ == "model";
    if (part_ == kTree && in_model && key_ == "merges") return Add(Json::array()) && Enter(kMerges);
    return Open(Json::array());
  }
  bool end_array() override {
    if (part_ == kTree) return Close();
    if (part_ == kMerges) return Enter(kTree);
    if (halves_ != 2) return FailMerge();
    file_.tables.merges.push_back(std::move(merge_));
    return Enter(kMerges);
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    return Fail(error.what());
  }

 private:
  enum Part { kTree, kVocab, kMerges, kPair };

  bool Enter(Part part) {
    part_ = part;
    return true;
  }
  bool Fail(absl::string_view why) {
    error_ = std::string(why);
    return false;
  }
  bool FailMerge() {
    return Fail(absl::StrCat("model: merges[", file_.tables.merges.size(),
                             "]: expected \"left right\" or [left, right]"));
  }
  bool FailId(absl::string_view got) {
    return Fail(absl::StrCat(only_vocab_ ? "" : "model: vocab: ", key_,
                             ": expected an id from 0 to ", BpeTables::kMaxVocab - 1, ", got ",
                             got));
  }
  // A value of the tree, or one that a table cannot have.
  bool Add(Json value) {
    if (part_ == kVocab) return FailId(value.dump(-1, ' ', true).substr(0, 40));
    if (part_ != kTree) return FailMerge();
    Put(std::move(value));
    return true;
  }
  Json* Put(Json value) {
    if (tree_.empty()) return &(file_.json = std::move(value));
    if (tree_.back()->is_array()) return &tree_.back()->emplace_back(std::move(value));
    return &((*tree_.back())[key_] = std::move(value));
  }
  bool Open(Json value) {
    if (part_ == kVocab) return FailId(value.is_array() ? "a list" : "an object");
    if (part_ != kTree) return FailMerge();
    if (tree_.size() == 1) path_ = key_;
    tree_.push_back(Put(std::move(value)));
    return true;
  }
  bool Close() {
    tree_.pop_back();
    return true;
  }
  bool AddId(int64_t id) {
    if (id < 0 || id >= BpeTables::kMaxVocab) return FailId(absl::StrCat(id));
    file_.tables.vocab.emplace_back(std::move(key_), static_cast<TokenId>(id));
    return true;
  }
  bool AddMerge(const std::string& text) {
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      return FailMerge();
    file_.tables.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return true;
  }

  const bool only_vocab_;
  Part part_ = kTree;
  TokenizerFile file_;
  std::vector<Json*> tree_;  // the open objects and lists
  std::string key_, path_;   // path_: the key of tree_[1]
  std::pair<std::string, std::string> merge_;
  int halves_ = 0;  // how many of merge_ are read
  std::string error_;
};

absl::StatusOr<TokenizerFile> Parse(absl::string_view text, bool only_vocab) {
  TableReader reader(only_vocab);
  if (!Json::sax_parse(text.begin(), text.end(), &reader))
    return absl::InvalidArgumentError(reader.error());
  return reader.TakeFile();
}

}  // namespace

absl::StatusOr<TokenizerFile> ParseTokenizerJson(absl::string_view text) {
  return Parse(text, /*only_vocab=*/false);
}

absl::StatusOr<BpeTables> ParseVocabJson(absl::string_view text) {
  absl::StatusOr<TokenizerFile> file = Parse(text, /*only_vocab=*/true);
  if (!file.ok()) return file.status();
  if (file->tables.vocab.empty())
    return absl::InvalidArgumentError("expected an object of token to id");
  return std::move(file->tables);
}

}  // namespace coppice::tokenizer
