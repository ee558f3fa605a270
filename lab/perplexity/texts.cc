#include "lab/perplexity/texts.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace coppice::perplexity {
namespace {

absl::StatusOr<std::string> TextOfLine(const std::string& line, const std::string& path,
                                       size_t number) {
  const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [&](const char* key) { return row.contains(key) && row[key].is_string(); };
  if (!row.is_object() || !is_text("prompt") || !is_text("completion")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ":", number, ": expected an object with the strings prompt and completion"));
  }
  return row["prompt"].get<std::string>() + row["completion"].get<std::string>();
}

absl::StatusOr<std::vector<std::string>> ReadTexts(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::vector<std::string> texts;
  if (absl::EndsWith(path, ".jsonl")) {
    std::string line;
    for (size_t number = 1; std::getline(file, line); ++number) {
      COPPICE_ASSIGN_OR_RETURN(std::string text, TextOfLine(line, path, number));
      texts.push_back(std::move(text));
    }
  } else {
    const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (const absl::string_view text : absl::StrSplit(all, "<|endoftext|>")) {
      const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
      if (!trimmed.empty()) texts.emplace_back(trimmed);
    }
  }
  return texts;
}

}  // namespace

absl::StatusOr<std::vector<Window>> ReadWindows(const std::string& path, int longest,
                                                const tokenizer::Tokenizer& tokenizer) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadTexts(path));
  std::vector<Window> windows;
  for (const std::string& text : texts) {
    const std::vector<TokenId> ids = tokenizer.Encode(text, /*add_special_tokens=*/true);
    for (size_t begin = 0; begin + 1 < ids.size(); begin += longest) {
      const size_t end = std::min(ids.size(), begin + longest);
      if (end - begin > 1) windows.emplace_back(ids.begin() + begin, ids.begin() + end);
    }
  }
  if (windows.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no text of two tokens or more"));
  }
  return windows;
}

}  // namespace coppice::perplexity
