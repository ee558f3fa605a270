#include "loadgen/dataset.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>

#include "base/status.h"

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

bool IsIdList(const Json& json) {
  if (!json.is_array() || json.empty()) return false;
  for (const Json& id : json) {
    if (!id.is_number_integer() || id < 0) return false;
  }
  return true;
}

absl::StatusOr<Prompt> ReadCustomRow(const Json& json) {
  Prompt prompt;
  prompt.text = json.value("prompt", Json());
  prompt.messages = json.value("messages", Json());
  if (!prompt.messages.is_null()) {
    if (!prompt.messages.is_array() || prompt.messages.empty() || !prompt.text.is_null())
      return absl::InvalidArgumentError("messages: expected a list, and no prompt beside it");
  } else if (!prompt.text.is_string() && !IsIdList(prompt.text)) {
    return absl::InvalidArgumentError("prompt: expected a string or a list of token ids");
  }
  const auto integer = [&](const char* key, int64_t least, auto* value) -> absl::Status {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) return absl::OkStatus();
    if (!it->is_number_integer() || *it < least || *it > INT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": expected an integer of at least ", least));
    }
    *value = it->get<int64_t>();
    return absl::OkStatus();
  };
  COPPICE_RETURN_IF_ERROR(integer("output_tokens", 1, &prompt.output_tokens));
  COPPICE_RETURN_IF_ERROR(integer("seed", 0, &prompt.seed));
  if (json.contains("body") && !json["body"].is_null()) prompt.body = json["body"];
  if (!prompt.body.is_object()) return absl::InvalidArgumentError("body: expected an object");
  return prompt;
}

absl::StatusOr<Prompt> ReadSpecBenchRow(const Json& json, bool all_turns) {
  const Json turns = json.value("turns", Json());
  if (!turns.is_array() || turns.empty())
    return absl::InvalidArgumentError("turns: expected a list of strings");
  Prompt prompt;
  for (const Json& turn : turns) {
    if (!turn.is_string()) return absl::InvalidArgumentError("turns: expected strings");
    if (prompt.text.is_null()) {
      prompt.text = turn;
    } else if (all_turns) {
      prompt.later_turns.push_back(turn);
    }
  }
  return prompt;
}

absl::StatusOr<std::vector<Prompt>> ReadJsonLines(
    const std::string& path, const std::function<absl::StatusOr<Prompt>(const Json&)>& read_row) {
  errno = 0;
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::vector<Prompt> prompts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    absl::StatusOr<Prompt> prompt = absl::InvalidArgumentError("expected a JSON object");
    if (json.is_object()) prompt = read_row(json);
    if (!prompt.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", prompt.status().message()));
    }
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no prompts"));
  return prompts;
}

}  // namespace

absl::StatusOr<std::vector<Prompt>> ReadCustomDataset(const std::string& path) {
  return ReadJsonLines(path, ReadCustomRow);
}

absl::StatusOr<std::vector<Prompt>> ReadSpecBench(const std::string& path, bool all_turns) {
  return ReadJsonLines(path,
                       [all_turns](const Json& json) { return ReadSpecBenchRow(json, all_turns); });
}

std::vector<Prompt> TakePrompts(std::vector<Prompt> prompts, int count) {
  const int64_t rows = static_cast<int64_t>(prompts.size());
  if (count == 0 || count == rows || rows == 0) return prompts;
  std::vector<Prompt> taken;
  for (int64_t i = 0; i < count; ++i) {
    taken.push_back(prompts[count < rows ? i * rows / count : i % rows]);
  }
  return taken;
}

}  // namespace coppice::loadgen
