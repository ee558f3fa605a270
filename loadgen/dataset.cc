#include "loadgen/dataset.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "base/status.h"

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

constexpr int kFirstRandomId = 259, kLastRandomId = 511;

bool IsIdList(const Json& json) {
  if (!json.is_array() || json.empty()) return false;
  for (const Json& id : json) {
    if (!id.is_number_integer() || id < 0) return false;
  }
  return true;
}

absl::StatusOr<Prompt> ReadRow(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("expected a JSON object");
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

}  // namespace

absl::StatusOr<std::vector<Prompt>> ReadCustomDataset(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::vector<Prompt> prompts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<Prompt> prompt = ReadRow(line);
    if (!prompt.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", prompt.status().message()));
    }
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no prompts"));
  return prompts;
}

std::vector<Prompt> RandomDataset(int count, int input_len, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<Prompt> prompts(count);
  for (Prompt& prompt : prompts) {
    prompt.text = Json::array();
    for (int i = 0; i < input_len; ++i) {
      prompt.text.push_back(kFirstRandomId +
                            static_cast<int>(engine() % (kLastRandomId - kFirstRandomId + 1)));
    }
  }
  return prompts;
}

Json RequestBody(const Prompt& prompt, int k, const BodySettings& settings) {
  Json body = {
      {"model", settings.model},
      {"stream", true},
      {"stream_options", {{"include_usage", true}}},
      {"max_tokens", prompt.output_tokens > 0 ? prompt.output_tokens : settings.output_len},
      {"seed", prompt.seed >= 0 ? static_cast<uint64_t>(prompt.seed) : settings.seed + k}};
  if (!prompt.messages.is_null()) {
    body["messages"] = prompt.messages;
  } else if (settings.chat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", prompt.text}}});
  } else {
    body["prompt"] = prompt.text;
  }
  body.update(settings.fields);
  body.update(prompt.body);
  return body;
}

}  // namespace coppice::loadgen
