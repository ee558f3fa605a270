#include "loadgen/request_source.h"

#include <algorithm>
#include <random>
#include <utility>

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

constexpr int kFirstRandomId = 259, kLastRandomId = 511;

// The conversation so far and the next turn of the user: as messages, or as one text with a blank
// line before each further turn.
Prompt NextTurn(const Prompt& prompt, const std::vector<std::string>& answers, bool chat) {
  Prompt next = prompt;
  std::string text = prompt.text.get<std::string>();
  Json messages = Json::array({{{"role", "user"}, {"content", text}}});
  for (size_t i = 0; i < answers.size(); ++i) {
    messages.push_back({{"role", "assistant"}, {"content", answers[i]}});
    messages.push_back({{"role", "user"}, {"content", prompt.later_turns[i]}});
    text += answers[i] + "\n\n" + prompt.later_turns[i];
  }
  if (chat) {
    next.messages = std::move(messages);
  } else {
    next.text = std::move(text);
  }
  return next;
}

}  // namespace

Json RequestBody(const Prompt& prompt, int64_t k, const BodySettings& settings) {
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

Json RandomIds(int count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  Json::array_t ids(count);
  for (Json& id : ids) {
    id = kFirstRandomId + static_cast<int>(engine() % (kLastRandomId - kFirstRandomId + 1));
  }
  return ids;
}

bool RequestSource::has_later_turns() const {
  return std::any_of(prompts_.begin(), prompts_.end(),
                     [](const Prompt& prompt) { return !prompt.later_turns.empty(); });
}

PreparedRequest RequestSource::Prepare(int64_t c, int64_t k,
                                       const std::vector<std::string>& answers) const {
  const Prompt& prompt = at(c);
  Json body;
  if (!answers.empty()) {
    body = RequestBody(NextTurn(prompt, answers, settings_.chat), k, settings_);
  } else if (prompt.input_len > 0) {
    Prompt sized = prompt;
    sized.text = RandomIds(prompt.input_len, settings_.seed + c);
    body = RequestBody(sized, k, settings_);
  } else {
    body = RequestBody(prompt, k, settings_);
  }
  PreparedRequest request;
  const auto n = body.find("n");
  if (n != body.end() && n->is_number_integer()) request.choices = n->get<int>();
  const auto ids = body.find("prompt");
  if (ids != body.end() && ids->is_array()) request.prompt_tokens = ids->size();
  // The prompt may hold invalid UTF-8 of a file, or of an answer.
  request.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return request;
}

}  // namespace coppice::loadgen
