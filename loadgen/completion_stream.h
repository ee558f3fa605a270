// Reads the events of one streamed completion (OpenAI shape, text or chat) into its record. Called
// by the client. Thread-compatible; no socket.
#pragma once

#include <string>
#include <string_view>

#include "loadgen/record.h"

namespace coppice::loadgen {

class CompletionStream {
 public:
  // *record must outlive this. keep_text: record->text gets the text of choice 0.
  explicit CompletionStream(RequestRecord* record, bool keep_text = false)
      : record_(record), keep_text_(keep_text) {}

  void OnData(const std::string& data, double now_s);
  // Call when the stream has ended. Without [DONE] the request counts as failed.
  void Finish();
  bool done() const { return done_; }

 private:
  RequestRecord* record_;
  bool keep_text_;
  bool done_ = false;
};

// The message of an error body: code and message if it has the shape of OpenAI, else its first
// characters.
std::string ErrorText(std::string_view body);

}  // namespace coppice::loadgen
