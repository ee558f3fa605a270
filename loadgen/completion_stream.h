// Reads the events of one streamed completion (OpenAI shape, text or chat) into its record. Called
// by the client. Thread-compatible; no socket.
#pragma once

#include <string>
#include <string_view>

#include "loadgen/record.h"

namespace coppice::loadgen {

class CompletionStream {
 public:
  explicit CompletionStream(RequestRecord* record)
      : record_(record) {}  // *record must outlive this

  void OnData(const std::string& data, double now_s);
  // Call when the stream has ended. Without [DONE] the request counts as failed.
  void Finish();
  bool done() const { return done_; }

 private:
  RequestRecord* record_;
  bool done_ = false;
};

// The message of an error body: code and message if it has the shape of OpenAI, else its first
// characters.
std::string ErrorText(std::string_view body);

}  // namespace coppice::loadgen
