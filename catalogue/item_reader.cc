#include "catalogue/item_reader.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/printable_name.h"
#include "base/regular_file.h"
#include "base/status.h"

namespace coppice::catalogue {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostLineBytes = 1 << 20;
constexpr int64_t kItemsPerReport = 100'000;

struct Item {
  std::vector<TokenId> tokens;
  std::string id, name;
};

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<Item> ReadTokens(absl::string_view line, uint32_t number) {
  Item item;
  for (const absl::string_view word :
       absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    TokenId token;
    if (!absl::SimpleAtoi(word, &token))
      return Bad(absl::StrCat("\"", PrintableName(word), "\" is no token id"));
    item.tokens.push_back(token);
  }
  item.id = absl::StrCat(number);
  return item;
}

absl::StatusOr<std::vector<TokenId>> TokensOf(const Json& list) {
  if (!list.is_array()) return Bad("\"tokens\" is no list");
  std::vector<TokenId> tokens;
  for (const Json& token : list) {
    if (!token.is_number_integer() || token < 0 || token > INT32_MAX)
      return Bad(absl::StrCat("tokens[", tokens.size(), "] is no token id"));
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

absl::StatusOr<Item> ReadObject(const std::string& line, const tokenizer::Tokenizer& tokenizer) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return Bad("no JSON");
  if (!object.is_object()) return Bad("no JSON object");
  Item item;
  for (const auto& [field, value] : object.items()) {
    if (field == "id" && value.is_number_integer()) {
      item.id = value.dump();
    } else if (field == "id" || field == "name" || field == "text") {
      if (!value.is_string()) return Bad(absl::StrCat("\"", field, "\" is no string"));
      if (field == "id") item.id = value.get<std::string>();
      if (field == "name") item.name = value.get<std::string>();
    } else if (field != "tokens") {
      return Bad(absl::StrCat("unknown field \"", PrintableName(field), "\""));
    }
  }
  if (!object.contains("id")) return Bad("\"id\" is missing");
  if (object.contains("tokens") == object.contains("text"))
    return Bad("expected one of \"tokens\" and \"text\"");
  if (object.contains("tokens")) {
    COPPICE_ASSIGN_OR_RETURN(item.tokens, TokensOf(object["tokens"]));
  } else {
    item.tokens = tokenizer.EncodeChat(object["text"].get<std::string>(), {},
                                       /*add_special_tokens=*/false);
  }
  return item;
}

// No token before the last ends a text; with a stop id after the item the last one neither.
absl::Status CheckEnds(const std::vector<TokenId>& tokens, const std::vector<TokenId>& ends,
                       ItemEnd end) {
  const size_t inner = tokens.size() - (end == ItemEnd::kNone && !tokens.empty() ? 1 : 0);
  const auto found =
      std::find_first_of(tokens.begin(), tokens.begin() + inner, ends.begin(), ends.end());
  if (found == tokens.begin() + inner) return absl::OkStatus();
  return Bad(absl::StrCat("token ", *found, " ends a text, and is inside of the item"));
}

absl::StatusOr<Item> ReadItem(std::string line, uint32_t number, bool is_object,
                              const tokenizer::Tokenizer& tokenizer) {
  absl::StripAsciiWhitespace(&line);
  if (line.empty()) return Bad("the line is empty");
  if (line.size() > kMostLineBytes)
    return Bad(absl::StrCat("the line has more than ", kMostLineBytes, " bytes"));
  return is_object ? ReadObject(line, tokenizer) : ReadTokens(line, number);
}

}  // namespace

absl::Status ReadItems(const std::string& path, const tokenizer::Tokenizer& tokenizer, ItemEnd end,
                       const std::function<void(int64_t items)>& progress,
                       CatalogueBuilder* builder) {
  COPPICE_RETURN_IF_ERROR(CheckRegularFile(path, INT64_MAX));
  std::ifstream file(path, std::ios::binary);
  const std::vector<TokenId> ends = tokenizer.eos_ids();
  std::string line;
  bool objects = false;
  for (uint32_t number = 1; std::getline(file, line); ++number) {
    if (number == 1) objects = absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "{");
    auto item = ReadItem(std::move(line), number, objects, tokenizer);
    absl::Status status = item.ok() ? CheckEnds(item->tokens, ends, end) : item.status();
    if (!status.ok()) return Bad(absl::StrCat(path, ":", number, ": ", status.message()));
    COPPICE_RETURN_IF_ERROR(builder->Add(item->tokens, item->id, item->name, number));
    if (builder->items() % kItemsPerReport == 0) progress(builder->items());
  }
  if (file.bad()) return absl::UnavailableError(absl::StrCat(path, ": cannot be read"));
  return absl::OkStatus();
}

}  // namespace coppice::catalogue
