// A server for tests of the load generator. It has an OpenAI-like API but computes nothing. It uses
// plain sockets and one thread per connection. Fields of the request select the answer.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace coppice::loadgen {

// Streams `max_tokens` events "x" 1 ms apart, then usage and [DONE]. Request fields that change
// this: "null_delay_ms": a delay before the head, which the end
// of the server cuts short. "null_error": "status" (400 with an error
// body), "event" (an error event after one text) or "cut" (the connection ends after one text).
// "null_wait_for": the answer begins when so many requests have arrived. /tokenize counts words and
// one token before them.
class NullServer {
 public:
  NullServer();  // listens on a free port of 127.0.0.1
  ~NullServer();

  std::string base_url() const;
  // Of the completions received so far, in order.
  std::vector<std::string> bodies();
  std::vector<std::string> heads();

 private:
  void Accept();
  void Serve(int socket);
  // These return false to close the connection.
  bool Answer(int socket, const std::string& head, const std::string& body);
  bool Complete(int socket, const std::string& head, const std::string& body);

  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::string> bodies_, heads_;  // guarded by mutex_
  std::vector<std::thread> threads_;         // guarded by mutex_
  std::vector<int> sockets_;                 // guarded by mutex_
  std::thread acceptor_;
};

}  // namespace coppice::loadgen
