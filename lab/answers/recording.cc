#include "lab/answers/recording.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "lab/answers/answer_json.h"

namespace coppice::answers {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;

absl::Status AddFile(const std::filesystem::path& path, uint64_t* hash) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path.string(), ": cannot be read"));
  for (std::istreambuf_iterator<char> at(file), end; at != end; ++at) {
    *hash = (*hash ^ static_cast<unsigned char>(*at)) * 0x100000001b3ull;
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordedAnswer> ParseAnswer(const Json& json) {
  if (!json.is_object() || !json.contains("request") || !json.contains("answer")) {
    return absl::InvalidArgumentError("expected an object with \"request\" and \"answer\"");
  }
  RecordedAnswer line;
  COPPICE_ASSIGN_OR_RETURN(line.request, RequestFromJson(json["request"]));
  line.answer = json["answer"];
  line.refusal = json.value("refusal", "");
  return line;
}

absl::Status ParseLine(const std::string& text, bool first, Recording* recording) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!first) {
    COPPICE_ASSIGN_OR_RETURN(RecordedAnswer line, ParseAnswer(json));
    recording->answers.push_back(std::move(line));
    return absl::OkStatus();
  }
  if (!json.is_object() || json.value("format", 0) != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected the head of a recording of format ", kFormat));
  }
  recording->target = json.value("target", "");
  recording->draft = json.value("draft", "");
  recording->kernels = json.value("kernels", "");
  return absl::OkStatus();
}

// The keys of both objects, in the order in which differences are most useful.
std::vector<std::string> KeysOf(const Json& a, const Json& b) {
  std::set<std::string> keys;
  for (const Json* json : {&a, &b}) {
    for (const auto& item : json->items()) keys.insert(item.key());
  }
  std::vector<std::string> ordered;
  for (const char* key : {"refused", "hypotheses", "tokens", "finished", "joint_log_probability",
                          "score", "layers"}) {
    if (keys.erase(key) > 0) ordered.push_back(key);
  }
  ordered.insert(ordered.end(), keys.begin(), keys.end());
  return ordered;
}

std::string JoinField(const std::string& at, const std::string& key) {
  return at.empty() ? key : absl::StrCat(at, ".", key);
}

bool IsScore(const std::string& field) {
  return field == "hypotheses.joint_log_probability" || field == "hypotheses.score";
}

// A score is written as a hexadecimal float.
std::optional<double> ScoreOf(const Json& json) {
  double value = 0;
  if (!json.is_string() || std::sscanf(json.get<std::string>().c_str(), "%la", &value) != 1) {
    return std::nullopt;
  }
  return value;
}

bool SameScore(const Json& recorded, const Json& now, double tolerance) {
  const std::optional<double> a = ScoreOf(recorded), b = ScoreOf(now);
  return a && b && std::abs(*a - *b) <= tolerance;
}

std::string ValueText(const std::string& field, const Json& json) {
  if (json.is_null()) return "nothing";
  const std::optional<double> score = IsScore(field) ? ScoreOf(json) : std::nullopt;
  if (!score) return json.dump();
  return absl::StrFormat("%s (%.9g)", json.get<std::string>(), *score);
}

// Walks both answers in parallel. `field` is a path without indices.
class Comparison {
 public:
  explicit Comparison(double score_tolerance) : score_tolerance_(score_tolerance) {}

  Difference First(const Json& recorded, const Json& now, const std::string& field,
                   const std::string& place) const {
    if (recorded == now) return {};
    if (IsScore(field) && SameScore(recorded, now, score_tolerance_)) return {};
    if (recorded.is_object() && now.is_object()) return FirstKey(recorded, now, field, place);
    if (recorded.is_array() && now.is_array()) return FirstElement(recorded, now, field, place);
    return {field, absl::StrCat(place, ": recorded ", ValueText(field, recorded), ", now ",
                                ValueText(field, now))};
  }

 private:
  Difference FirstKey(const Json& recorded, const Json& now, const std::string& field,
                      const std::string& place) const {
    for (const std::string& key : KeysOf(recorded, now)) {
      Difference difference = First(recorded.value(key, Json()), now.value(key, Json()),
                                    JoinField(field, key), JoinField(place, key));
      if (!difference.field.empty()) return difference;
    }
    return {};
  }
  Difference FirstElement(const Json& recorded, const Json& now, const std::string& field,
                          const std::string& place) const {
    for (size_t i = 0; i < std::max(recorded.size(), now.size()); ++i) {
      Difference difference =
          First(i < recorded.size() ? recorded[i] : Json(), i < now.size() ? now[i] : Json(), field,
                absl::StrCat(place, "[", i, "]"));
      if (!difference.field.empty()) return difference;
    }
    return {};
  }

  double score_tolerance_;
};

}  // namespace

absl::StatusOr<std::string> FolderFingerprint(const std::string& dir) {
  std::set<std::filesystem::path> files;
  std::error_code error;
  if (std::filesystem::is_regular_file(dir, error)) {
    files = {dir};
  } else {
    files = {std::filesystem::path(dir) / "config.json"};
    for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
      if (entry.path().extension() == ".safetensors") files.insert(entry.path());
    }
    if (error) return absl::NotFoundError(absl::StrCat(dir, ": ", error.message()));
  }
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const auto& file : files) COPPICE_RETURN_IF_ERROR(AddFile(file, &hash));
  return absl::StrFormat("%016x", hash);
}

absl::Status WriteRecording(const Recording& recording, const std::string& path) {
  std::ofstream file(path);
  file << Json{{"format", kFormat},
               {"target", recording.target},
               {"draft", recording.draft},
               {"kernels", recording.kernels}}
       << "\n";
  for (const RecordedAnswer& line : recording.answers) {
    Json json = {{"request", RequestToJson(line.request)}, {"answer", line.answer}};
    if (!line.refusal.empty()) json["refusal"] = line.refusal;
    file << json << "\n";
  }
  if (!file.flush()) return absl::DataLossError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

absl::StatusOr<Recording> ReadRecording(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  Recording recording;
  std::string text;
  int number = 0;
  while (std::getline(file, text)) {
    const absl::Status status = ParseLine(text, number++ == 0, &recording);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", status.message()));
    }
  }
  if (recording.answers.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no recorded answer"));
  }
  return recording;
}

Difference FirstDifference(const Json& recorded, const Json& now, double score_tolerance) {
  return Comparison(score_tolerance).First(recorded, now, "", "");
}

}  // namespace coppice::answers
