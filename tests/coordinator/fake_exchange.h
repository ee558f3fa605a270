// An HTTP exchange that records the answer.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/http/http.h"

namespace coppice::coordinator {

class FakeExchange : public HttpExchange {
 public:
  void AddHeader(const std::string&, const std::string&) override {}
  void Reply(HttpReply answer) override { reply = std::move(answer); }
  void ExpectStream() override {}
  bool stream_open() const override { return !events.empty(); }
  void SendEvent(const StreamEvent& event) override {
    events.push_back(event.data);
    names.push_back(event.name);
  }
  void EndStream(bool keep_connection) override { ended_cleanly = keep_connection; }
  void OnDisconnect(std::function<void()>) override {}

  nlohmann::json body() const { return nlohmann::json::parse(reply->body); }
  // The text of one choice, joined from the events.
  std::string Streamed(int index) const {
    std::string text;
    for (const std::string& event : events) {
      if (event == "[DONE]") continue;
      const nlohmann::json json = nlohmann::json::parse(event);
      if (!json.contains("choices")) continue;
      for (const nlohmann::json& choice : json["choices"]) {
        if (choice["index"] == index) text += choice["text"].get<std::string>();
      }
    }
    return text;
  }

  std::optional<HttpReply> reply;
  std::vector<std::string> events, names;
  std::optional<bool> ended_cleanly;
};

}  // namespace coppice::coordinator
