#include "tokenizer/pretokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/json_pattern.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

// Radford et al. 2019, the GPT-2 encoder. Matches contractions; runs of letters, of digits or of
// other signs, each with an optional space before it; and white space except the last blank before
// a word.
constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const Json& json) {
  PreTokenizer pre_tokenizer;
  if (!json.is_null()) COPPICE_RETURN_IF_ERROR(pre_tokenizer.AddSteps(json, 0));
  return pre_tokenizer;
}

absl::Status PreTokenizer::AddSteps(const Json& json, int depth) {
  const std::string type = json.at("type").get<std::string>();
  if (type == "Sequence" && depth < kMaxNesting) {
    for (const Json& part : json.at("pretokenizers")) {
      COPPICE_RETURN_IF_ERROR(AddSteps(part, depth + 1));
    }
    return absl::OkStatus();
  }
  if (type == "Split") return AddSplit(json);
  if (type == "ByteLevel") return AddByteLevel(json);
  if (type == "Metaspace") return AddMetaspace(json);
  if (type == "Digits") {
    const bool each = json.value("individual_digits", false);
    return AddRegex("\\p{N}", /*literal=*/false, each ? Behavior::kIsolated : Behavior::kContiguous,
                    /*invert=*/false);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("pre_tokenizer: type ", type,
                   " is not supported, expected Sequence, Split, ByteLevel, Metaspace or Digits"));
}

absl::Status PreTokenizer::AddRegex(const std::string& pattern, bool literal, Behavior behavior,
                                    bool invert) {
  COPPICE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern, literal));
  steps_.push_back(SplitStep{std::move(regex), behavior, invert});
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddSplit(const Json& json) {
  COPPICE_ASSIGN_OR_RETURN(Regex regex, CompileJsonPattern(json.at("pattern")));
  static constexpr std::pair<const char*, Behavior> kBehaviors[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  const std::string wanted = json.at("behavior").get<std::string>();
  for (const auto& [name, behavior] : kBehaviors) {
    if (wanted != name) continue;
    if (behavior == Behavior::kRemoved) keeps_all_ = false;
    steps_.push_back(SplitStep{std::move(regex), behavior, json.value("invert", false)});
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("pre_tokenizer: Split: behavior ", wanted, " is not supported"));
}

absl::Status PreTokenizer::AddByteLevel(const Json& json) {
  if (byte_level_) return absl::InvalidArgumentError("pre_tokenizer: ByteLevel appears twice");
  byte_level_ = true;
  if (json.value("add_prefix_space", true)) steps_.push_back(PrefixStep{" ", Prepend::kAlways});
  if (json.value("use_regex", true)) {
    COPPICE_RETURN_IF_ERROR(AddRegex(kGpt2Pattern, /*literal=*/false, Behavior::kIsolated, false));
  }
  steps_.push_back(ByteAlphabetStep{});
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddMetaspace(const Json& json) {
  const std::string mark = json.at("replacement").get<std::string>();
  const bool old_flag = json.value("add_prefix_space", true);
  const std::string scheme = json.value("prepend_scheme", old_flag ? "always" : "never");
  steps_.push_back(ReplaceSpaceStep{mark});
  replaces_space_ = true;
  if (mark.empty()) keeps_all_ = false;
  if (scheme == "always" || scheme == "first") {
    steps_.push_back(PrefixStep{mark, scheme == "first" ? Prepend::kFirst : Prepend::kAlways});
  } else if (scheme != "never") {
    return absl::InvalidArgumentError(
        absl::StrCat("pre_tokenizer: Metaspace: prepend_scheme ", scheme, " is not supported"));
  }
  if (!json.value("split", true)) return absl::OkStatus();
  return AddRegex(mark, /*literal=*/true, Behavior::kMergedWithNext, /*invert=*/false);
}

void PreTokenizer::Cut(const SplitStep& step, absl::string_view word, Words* words) {
  struct Part {
    size_t begin, end;
    bool match;
  };
  std::vector<Part> parts;
  const auto add = [&](size_t begin, size_t end, bool match) {
    if (begin < end) parts.push_back({begin, end, match != step.invert});
  };
  size_t at = 0;
  for (const Regex::Range& range : step.regex.FindAll(word)) {
    add(at, range.begin, false);
    add(range.begin, range.end, true);
    at = range.end;
  }
  add(at, word.size(), false);

  size_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const bool last = i + 1 == parts.size();
    if (step.behavior == Behavior::kRemoved && part.match) {
      begin = part.end;
      continue;
    }
    bool join_next = false;  // this part and the next form one word
    if (!last && step.behavior == Behavior::kMergedWithPrevious) {
      join_next = !part.match && parts[i + 1].match;
    } else if (!last && step.behavior == Behavior::kMergedWithNext) {
      join_next = part.match && !parts[i + 1].match;
    } else if (!last && step.behavior == Behavior::kContiguous) {
      join_next = part.match == parts[i + 1].match;
    }
    if (join_next) continue;
    words->emplace_back(word.substr(begin, part.end - begin));
    begin = part.end;
  }
}

std::vector<std::string> PreTokenizer::Split(absl::string_view text, bool at_text_start) const {
  Words words = {std::string(text)};
  for (const Step& step : steps_) {
    if (const auto* split = std::get_if<SplitStep>(&step)) {
      Words cut;
      for (const std::string& word : words) Cut(*split, word, &cut);
      words = std::move(cut);
    } else if (const auto* prefix = std::get_if<PrefixStep>(&step)) {
      for (size_t i = 0; i < words.size(); ++i) {
        const bool wanted = prefix->prepend == Prepend::kAlways || (i == 0 && at_text_start);
        if (wanted && !absl::StartsWith(words[i], prefix->mark)) words[i].insert(0, prefix->mark);
      }
    } else if (const auto* replace = std::get_if<ReplaceSpaceStep>(&step)) {
      for (std::string& word : words) absl::StrReplaceAll({{" ", replace->replacement}}, &word);
    } else {
      for (std::string& word : words) word = BytesToByteLevel(word);
    }
  }
  return words;
}

}  // namespace coppice::tokenizer
