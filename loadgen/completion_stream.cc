#include "loadgen/completion_stream.h"

#include <nlohmann/json.hpp>

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxErrorText = 200;

int64_t Integer(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<int64_t>() : 0;
}

// A string member that is not empty, or nullptr.
const std::string* Text(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return nullptr;
  const std::string& text = it->get_ref<const std::string&>();
  return text.empty() ? nullptr : &text;
}

// The text that an event adds to a choice, or nullptr.
const std::string* TextOf(const Json& choice) {
  if (const std::string* text = Text(choice, "text")) return text;
  const auto delta = choice.find("delta");
  return delta == choice.end() || !delta->is_object() ? nullptr : Text(*delta, "content");
}

// Models that think first stream that text under other names.
bool HasReasoning(const Json& choice) {
  const auto delta = choice.find("delta");
  return delta != choice.end() && delta->is_object() &&
         (Text(*delta, "reasoning_content") || Text(*delta, "reasoning"));
}

SpeculationUsage ReadSpeculation(const Json& json) {
  SpeculationUsage usage;
  usage.rounds = Integer(json, "rounds");
  usage.plain_rounds = Integer(json, "plain_rounds");
  usage.target_passes = Integer(json, "target_passes");
  usage.layers = Integer(json, "layers");
  usage.drafted_nodes = Integer(json, "drafted_nodes");
  usage.accepted_nodes = Integer(json, "accepted_nodes");
  if (json.contains("accepted_by_layer") && json["accepted_by_layer"].is_array()) {
    for (const Json& count : json["accepted_by_layer"]) {
      usage.accepted_by_layer.push_back(count.is_number() ? count.get<int64_t>() : 0);
    }
  }
  if (json.contains("accepted_width") && json["accepted_width"].is_number()) {
    usage.accepted_width = json["accepted_width"].get<double>();
  }
  return usage;
}

void ReadUsage(const Json& usage, RequestRecord* record) {
  record->prompt_tokens = Integer(usage, "prompt_tokens");
  record->output_tokens = Integer(usage, "completion_tokens");
  record->tokens_from_usage = true;
  const auto energy = usage.find("energy_joules");
  if (energy != usage.end() && energy->is_number()) record->energy_joules = energy->get<double>();
  if (usage.contains("speculation") && usage["speculation"].is_object()) {
    record->speculation = ReadSpeculation(usage["speculation"]);
  }
}

}  // namespace

void CompletionStream::OnData(const std::string& data, double now_s) {
  if (done_ || !record_->error.empty()) return;
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const Json json = Json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    record_->error = "event: expected a JSON object, got " + data.substr(0, 40);
    return;
  }
  if (json.contains("error") && !json["error"].is_null()) {
    record_->error = ErrorText(data);
    return;
  }
  bool text = false;
  if (json.contains("choices") && json["choices"].is_array()) {
    for (const Json& choice : json["choices"]) {
      if (!choice.is_object()) continue;
      const std::string* added = TextOf(choice);
      text = text || added != nullptr || HasReasoning(choice);
      if (keep_text_ && added != nullptr && Integer(choice, "index") == 0) record_->text += *added;
    }
  }
  if (text) {
    record_->text_times_s.push_back(now_s);
    if (!record_->tokens_from_usage) ++record_->output_tokens;
  }
  if (json.contains("usage") && json["usage"].is_object()) ReadUsage(json["usage"], record_);
}

void CompletionStream::Finish() {
  if (record_->error.empty() && !done_) record_->error = "stream ended without [DONE]";
  record_->ok = record_->error.empty();
}

std::string ErrorText(std::string_view body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("error") && json["error"].is_object()) {
    const Json& error = json["error"];
    const auto field = [&](const char* key) {
      return error.contains(key) && error[key].is_string() ? error[key].get<std::string>() : "";
    };
    return (field("code") + ": " + field("message")).substr(0, kMaxErrorText);
  }
  std::string text(body.substr(0, kMaxErrorText));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text.empty() ? "empty error body" : text;
}

}  // namespace coppice::loadgen
