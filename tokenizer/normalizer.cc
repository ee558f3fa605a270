#include "tokenizer/normalizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/json_pattern.h"
#include "tokenizer/nfc.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

// Most bytes of a text for each byte of its NFC: seven for the two of U+0390, which U+1FBE U+0308
// U+0301 become. Found by going through all characters of Unicode 14, and for each through what its
// decomposition can come from. Later versions of Unicode do not change these.
constexpr size_t kNfcShrinking = 4;

// Whether a replacement can make a text shorter. What a regular expression matches may have any
// length.
bool MayShorten(const Json& pattern, const std::string& content) {
  return !pattern.contains("String") ||
         pattern["String"].get_ref<const std::string&>().size() > content.size();
}

std::string ReplaceAll(const Regex& regex, absl::string_view text, const std::string& content) {
  std::string out;
  size_t at = 0;
  for (const Regex::Range& range : regex.FindAll(text)) {
    out.append(text.data() + at, range.begin - at);
    out += content;
    at = range.end;
  }
  return out.append(text.data() + at, text.size() - at);
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const Json& json) {
  Normalizer normalizer;
  if (!json.is_null()) COPPICE_RETURN_IF_ERROR(normalizer.AddSteps(json, 0));
  return normalizer;
}

absl::Status Normalizer::AddSteps(const Json& json, int depth) {
  const std::string type = json.at("type").get<std::string>();
  if (type == "Sequence" && depth < kMaxNesting) {
    for (const Json& part : json.at("normalizers")) {
      COPPICE_RETURN_IF_ERROR(AddSteps(part, depth + 1));
    }
  } else if (type == "Prepend") {
    steps_.push_back(PrependStep{json.at("prepend").get<std::string>()});
  } else if (type == "Replace") {
    COPPICE_ASSIGN_OR_RETURN(Regex regex, CompileJsonPattern(json.at("pattern")));
    std::string content = json.at("content").get<std::string>();
    if (MayShorten(json["pattern"], content)) most_shrinking_ = 0;
    ForgetKept(json["pattern"]);
    std::optional<std::string> literal;
    if (json["pattern"].contains("String")) literal = json["pattern"]["String"].get<std::string>();
    steps_.push_back(ReplaceStep{std::move(regex), std::move(literal), std::move(content)});
  } else if (type == "NFC") {
    // What an earlier replacement has put after a character may join it.
    for (const Step& step : steps_) {
      if (std::holds_alternative<ReplaceStep>(step)) kept_.reset();
    }
    steps_.push_back(NfcStep{});
    most_shrinking_ *= kNfcShrinking;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("normalizer: type ", type,
                     " is not supported, expected Sequence, Prepend, Replace or NFC"));
  }
  return absl::OkStatus();
}

// The characters that the pattern may match. A regular expression may match any.
void Normalizer::ForgetKept(const Json& pattern) {
  if (!pattern.contains("String")) {
    kept_.reset();
    return;
  }
  for (const char c : pattern["String"].get_ref<const std::string&>()) {
    if (static_cast<uint8_t>(c) < 0x80) kept_.reset(static_cast<uint8_t>(c));
  }
}

bool Normalizer::KeepsRun(absl::string_view c) const {
  for (const Step& step : steps_) {
    const auto* replace = std::get_if<ReplaceStep>(&step);
    if (replace != nullptr && (!replace->literal || absl::StrContains(*replace->literal, c)))
      return false;
    const std::string run = absl::StrCat(c, c, c, c);
    if (std::holds_alternative<NfcStep>(step) && ToNfc(run) != run) return false;
  }
  return true;
}

std::string Normalizer::Apply(absl::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      if (!out.empty()) out.insert(0, prepend->prefix);
    } else if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      out = ReplaceAll(replace->regex, out, replace->content);
    } else {
      out = ToNfc(out);
    }
  }
  return out;
}

}  // namespace coppice::tokenizer
